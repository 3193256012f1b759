"""The canonical form of words and choices takes linear time."""

from __future__ import annotations

import pytest

from tests.support.linear import WORST, assert_linear
from toolwright.reading import answers
from toolwright.reading.answers import choice, last_box, lone_letter, normal_form, words

pytestmark = pytest.mark.quick

PIECES = (
    *WORST,
    *("\\boxed 1", "\\boxed{1}", "\\text{", "\\text{a}", "answer is ", "A is correct ", "the "),
    *("B is the most best ", "option ", "(b)", "\u0301\u0316", "\u0301", "\u304b\u3099"),
)


def test_hostile_texts_take_linear_time() -> None:
    for read in (last_box, words, choice, lone_letter, normal_form, answers.final_answer):
        assert_linear(read, texts=PIECES)


def test_rows_of_combining_characters_are_bounded() -> None:
    assert normal_form("e\u0301" * 1000) == "\u00e9" * 1000
    row = "e" + "\u0316\u0301" * answers.MOST_COMBINING
    assert normal_form(row) == row
