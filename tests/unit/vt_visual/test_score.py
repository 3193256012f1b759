"""What an answer about a picture is worth, and what is told beside it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.linear import assert_linear
from tests.support.recipes import Part
from tests.unit.vt_visual.conftest import BROKEN, REFUSED, look, looked
from toolwright.types import CallRecord, Purpose, StopReason, Trajectory

OFFERED = "What does the man hold?\n(A) a red cup\n(B) a blue cup\nC. an umbrella"
GOLD_BOX = {"box": [0.2, 0.2, 0.3, 0.3]}


def worth(part: Part, trajectory: Trajectory) -> float:
    total: float = part("score.VisualReward")()(trajectory).total
    return total


def told(part: Part, trajectory: Trajectory) -> Mapping[str, Any]:
    (event,) = part("score.VisualReward")()(trajectory).events
    assert event.kind == "measured"
    return dict(event.data)


@pytest.mark.parametrize(
    ("said", "gold", "asked", "right"),
    [
        ("It says \\boxed{7}", "7", "?", True),
        ("7", "7", "?", True),
        (" 7 \n", "7", "?", True),
        ("\\boxed{7}", "7", "?", True),
        ("", "7", "?", False),
        ("\\boxed{3} no, \\boxed{7}", "7", "?", True),
        ("\\boxed{7} no, \\boxed{3}", "7", "?", False),
        ("It says 7", "7", "?", False),
        ("\\boxed{B}", "B", OFFERED, True),
        ("(b)", "B", OFFERED, True),
        ("a blue cup.", "B", OFFERED, True),
        ("The answer is B.", "B", OFFERED, True),
        ("\\boxed{a blue cup}", "B", OFFERED, True),
        ("\\boxed{B}", "a blue cup", OFFERED, True),
        ("\\boxed{An umbrella.}", "C", OFFERED, True),
        ("\\boxed{A}", "B", OFFERED, False),
        ("\\boxed{D}", "B", OFFERED, False),
        ("\\boxed{}", "B", OFFERED, False),
        ("", "B", OFFERED, False),
        ("\\boxed{B}", "\\boxed{B}", OFFERED, True),
        ("\\boxed{The Blue Cup}", "blue cup", "?", True),
        ("\\boxed{no}", ["yes", "no"], "?", True),
    ],
)
def test_letters_and_texts(part: Part, said: str, gold: Any, asked: str, right: bool) -> None:
    assert worth(part, looked(said, gold=gold, asked=asked)) == float(right)


@pytest.mark.parametrize("stop", [StopReason.MAX_TURNS, StopReason.MAX_RESPONSE_LENGTH])
def test_what_did_not_end_with_an_answer_has_none(part: Part, stop: StopReason) -> None:
    assert worth(part, looked("\\boxed{7}" + look(), stop=stop)) == 0
    assert worth(part, looked("\\boxed{7}", stop=stop)) == 0


def test_an_earlier_turn_answers_nothing(part: Part) -> None:
    assert worth(part, looked("I guess \\boxed{7}" + look(), "\\boxed{3}")) == 0


def test_a_question_without_words_or_answers_is_wrong(part: Part) -> None:
    assert worth(part, looked("\\boxed{7}", gold=(), asked="")) == 0
    assert worth(part, looked()) == 0


@pytest.mark.parametrize(
    ("asked", "options"),
    [
        (OFFERED, {"A": "a red cup", "B": "a blue cup", "C": "an umbrella"}),
        ("(A) only one", {}),
        ("A bus. B is no option\nBut this", {}),
        ("(A) one\n(A) two\n(B) three", {"A": "one", "B": "three"}),
        ("", {}),
    ],
)
def test_options_are_read_from_the_question(
    part: Part, asked: str, options: Mapping[str, str]
) -> None:
    assert part("answers.options_of")(looked(asked=asked).task) == options


@given(st.text(max_size=300))
def test_no_text_is_too_strange(part: Part, text: str) -> None:
    assert worth(part, looked(text, asked=text, gold=text)) in (0, 1)


def test_options_are_read_in_linear_time(part: Part) -> None:
    def read(size: int) -> None:
        part("answers.options_of")(looked(asked="\n(A) " * size + " " * size).task)

    assert_linear(read)


def test_an_evaluation_is_plain_accuracy(part: Part) -> None:
    """Whatever looks cost in training; what was done stands beside it."""
    looks = [look()] * 3
    score = part("score.VisualReward")()(
        looked(*looks, "7", purpose=Purpose.EVAL, outcomes=[REFUSED], metadata=GOLD_BOX)
    )
    assert score.total == 1
    assert not score.events
    assert {one.name: one.value for one in score.parts} == {
        "answer": 1,
        "looked": 1,
        "looks": 2,
        "refused": 1,
        "aimed": 1,
    }


def test_training_tells_what_was_done(part: Part) -> None:
    assert told(part, looked(look(), "7")) == {
        "right": 1,
        "right_if_looked": 1,
        "looked": 1,
        "looks": 1,
        "refused": 0,
    }
    guess = told(part, looked("3", metadata=GOLD_BOX))
    assert guess == {"right": 0, "looked": 0, "looks": 0, "refused": 0, "aimed": 0}


@pytest.mark.parametrize("outcome", [REFUSED, BROKEN])
def test_what_showed_nothing_is_told_apart(part: Part, outcome: Any) -> None:
    data = told(part, looked(look(), "7", outcomes=[outcome]))
    assert (data["looked"], data["refused"]) == (0, 1)


def record(action: str) -> CallRecord:
    (call,) = looked(action).calls
    return call


@pytest.mark.parametrize(
    ("action", "held"),
    [
        (look(0.2, 0.2, 0.3, 0.3), True),
        (look(0, 0, 1, 1), True),
        (look(0.7, 0.2, 0.8, 0.3), False),
        (look(0.3, 0.3, 0.2, 0.2), False),
        (look(80, 80, 120, 120), False),
        (look(0.2, 0.2, 0.3, 0.3, target_image=2), False),
        (look(0.2, 0.2, 0.3), False),
        ('<tool_call>{"name": "select_frames", "arguments": {}}</tool_call>', False),
        ("<tool_call>[</tool_call>", False),
        ('<tool_call>{"name": 1}</tool_call>', False),
    ],
)
def test_where_a_look_went(part: Part, action: str, held: bool) -> None:
    assert part("looks.aimed")([record(action)], GOLD_BOX["box"]) is held


@pytest.mark.parametrize("gold", [None, [], [1, 2, 3], "0123", [0, 0, 1, None], [True] * 4])
def test_nobody_knows_where_it_is_without_a_box(part: Part, gold: Any) -> None:
    assert part("looks.aimed")([record(look())], gold) is None
