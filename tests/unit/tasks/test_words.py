"""EM, CEM and F1 beside the golden examples."""

from __future__ import annotations

import time

import pytest

from tasks.judging.words import LONGEST, cover_match, exact_match, f1, normalise


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        ("The  Beatles!", "beatles"),
        ("twenty-one", "twentyone"),
        ("a\tan\nthe", ""),
        ("Théâtre", "théâtre"),
        ("“quoted”", "“quoted”"),  # only ASCII punctuation goes
        ("U.S.A.", "usa"),
    ],
)
def test_normalise(text: str, normal: str) -> None:
    assert normalise(text) == normal


def test_an_empty_right_answer_is_matched_by_an_empty_prediction_alone() -> None:
    assert exact_match("", ["the"])
    assert not exact_match("x", ["the"])
    assert not cover_match("the x", ["the"])
    assert f1("the", ["the"]) == 0.0


def test_verdicts_share_no_credit() -> None:
    assert f1("yes", ["Yes."]) == 1.0
    assert f1("yes it is", ["yes"]) == 0.0
    assert f1("no", ["no way"]) == 0.0


def test_words_count_as_often_as_they_stand_there_unless_said() -> None:
    assert f1("new new york", ["new york"]) == pytest.approx(0.8)
    assert f1("new new york", ["new york"], multiset=False) == 1.0


def test_no_right_answers() -> None:
    assert not exact_match("x", [])
    assert not cover_match("x", [])
    assert f1("x", []) == 0.0


def test_long_answers_cost_no_more_than_their_beginning() -> None:
    begun = time.process_time()
    assert f1("a " * 10_000_000, ["b"]) == 0.0
    assert not cover_match("x" * 10_000_000, ["y"])
    assert time.process_time() - begun < 2.0
    assert exact_match("x" * LONGEST + "y", ["x" * LONGEST])
