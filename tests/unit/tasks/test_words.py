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
        ("a\tan\nthe", "a an the"),
        ("A", "a"),
        ("?", "?"),
        (" \n", ""),
        ("The Who", "who"),
        ("The The", "the the"),
        ("Rock \u2019n\u2019 Roll", "rock n roll"),
        ("\u2018Tosca\u2019", "tosca"),
        ("Caf\u0065\u0301", "caf\u00e9"),
        ("Théâtre", "théâtre"),
        ("“quoted”", "“quoted”"),  # only ASCII punctuation goes
        ("U.S.A.", "usa"),
    ],
)
def test_normalise(text: str, normal: str) -> None:
    assert normalise(text) == normal


@pytest.mark.parametrize("gold", ["A", "the", "?", ",", "!", "", " "])
@pytest.mark.parametrize("blank", ["", " ", "\n\t"])
def test_a_blank_prediction_matches_nothing(blank: str, gold: str) -> None:
    assert not exact_match(blank, [gold])
    assert not cover_match(blank, [gold])
    assert f1(blank, [gold]) == 0.0


def test_an_article_that_is_the_whole_answer_stays() -> None:
    assert exact_match("The", ["the"])
    assert exact_match("A.", ["a"])
    assert exact_match("?", ["?"])
    assert not exact_match("the", ["?"])
    assert not exact_match("the", ["A"])
    assert not exact_match("x", ["the"])
    assert not cover_match("there is a cat", ["the"])
    assert not cover_match("a cat", ["A"])
    assert f1("the", ["the"]) == 1.0
    assert f1("an", ["the"]) == 0.0


def test_normal_forms_and_quotation_marks_of_unicode_are_one() -> None:
    assert exact_match("Bjo\u0308rk", ["Bj\u00f6rk"])
    assert cover_match("It is S\u00e3o Paulo.", ["Sa\u0303o Paulo"])
    assert f1("\u212b unit", ["\u00c5 unit"]) == 1.0
    assert exact_match("Ocean\u2019s Eleven", ["Ocean's Eleven"])


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
