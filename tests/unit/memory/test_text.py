"""The index of words: the same whether texts came at once or one by one, whatever came after."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from memory.search.text import LONGEST, TextIndex, Texts

WORD = st.sampled_from(["count", "words", "letters", "text", "circle", "the", "größe", "x"])
TEXT = st.lists(WORD, max_size=6).map(" ".join)


@given(st.lists(TEXT, max_size=8), st.lists(TEXT, max_size=4), TEXT)
def test_what_comes_later_changes_nothing(texts: list[str], later: list[str], query: str) -> None:
    grown = Texts(texts)
    before = TextIndex(grown, len(texts))
    for text in later:
        grown.add(text)
    after = TextIndex(grown, len(texts))
    alone = TextIndex(Texts(texts), len(texts))
    expected = alone.scores(query)
    assert before.scores(query).tobytes() == expected.tobytes()
    assert after.scores(query).tobytes() == expected.tobytes()
    assert ((expected >= 0) & (expected <= 1 + 1e-12)).all()


@given(st.lists(TEXT, min_size=1, max_size=8), st.data(), TEXT)
def test_a_text_that_is_gone_counts_for_nothing(
    texts: list[str], data: st.DataObject, query: str
) -> None:
    gone = sorted(data.draw(st.sets(st.integers(0, len(texts) - 1))))
    left = [text for place, text in enumerate(texts) if place not in gone]
    scores = TextIndex(Texts(texts), len(texts), np.array(gone, np.int64)).scores(query)
    assert not scores[gone].any()
    kept = np.delete(scores, gone)
    assert kept.tobytes() == TextIndex(Texts(left), len(left)).scores(query).tobytes()


def test_a_long_text_is_read_as_far_as_it_counts() -> None:
    texts = Texts(["needle " + "hay " * LONGEST + "pin", "pin"])
    index = TextIndex(texts, 2)
    assert index.scores("needle")[0] > 0
    assert index.scores("pin").tolist() == [0, 1]
    assert not index.scores("stack " * 1_000_000).any()
