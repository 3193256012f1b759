"""A sequence that does not fit by itself is named before the run."""

from __future__ import annotations

from learner.training.memory import GIB, logits_bytes, too_long

VOCABULARY = 151_936


def test_the_estimate_is_what_was_measured() -> None:
    assert 2.9 * 2**20 < logits_bytes(1, VOCABULARY) < 3.8 * 2**20


def test_what_fits_is_not_mentioned_and_the_mend_fits() -> None:
    assert too_long(4096, VOCABULARY, 16 * GIB, mend="set x") is None
    sentence = too_long(4096, VOCABULARY, 8 * GIB, mend="set x")
    assert sentence is not None
    assert "4096 trained tokens takes about 13.9 GiB" in sentence
    fits = int(sentence.partition("set x to at most ")[2].partition(",")[0])
    assert too_long(fits, VOCABULARY, 8 * GIB, mend="") is None
    assert too_long(fits + 1, VOCABULARY, 8 * GIB, mend="") is not None
