"""A sequence that does not fit by itself is named before the run."""

from __future__ import annotations

from learner.model.head import CHUNK_BYTES
from learner.training.memory import CHUNKS, GIB, too_long

A_TOKEN = 2 << 20


def test_what_fits_is_not_mentioned_and_the_advice_fits() -> None:
    assert too_long(4096, A_TOKEN, 16 * GIB, fix="set x") is None
    sentence = too_long(4096, A_TOKEN, 8 * GIB, fix="set x")
    assert sentence is not None
    fits = int(sentence.partition("set x to at most ")[2].partition(",")[0])
    assert too_long(fits, A_TOKEN, 8 * GIB, fix="") is None
    assert too_long(fits + 1, A_TOKEN, 8 * GIB, fix="") is not None
    empty = too_long(1, A_TOKEN, CHUNKS * CHUNK_BYTES // 2, fix="set x")
    assert empty is not None and "set x to at most 0," in empty
