"""What a trajectory is worth: its boxed answer, and the term for the tool in both readings."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.judging.outcomes import with_tool_term
from tests.support.linear import assert_linear
from tests.support.recipes import Part
from tests.unit.verltool.math.conftest import BOXES, NO_PROGRAM, RAISED, program, ran
from toolwright.types import CallOutcome, Purpose, StopReason, Trajectory

RIGHT, WRONG = r"So it is \boxed{42}.", r"So it is \boxed{41}."
USED, MATCH = "tool_used", "match"


def parts(part: Part, trajectory: Trajectory, **options: Any) -> dict[str, float]:
    score = part("score.MathReward")(**options)(trajectory)
    return {one.name: one.value for one in score.parts}


def reward(part: Part, trajectory: Trajectory, **options: Any) -> float:
    total: float = part("score.MathReward")(**options)(trajectory).total
    return total


@pytest.mark.parametrize(
    ("condition", "answer", "used", "accuracy", "tool"),
    [
        (USED, RIGHT, True, 1.0, 0.0),
        (USED, RIGHT, False, 1.0, -0.25),
        (USED, WRONG, True, -1.0, 0.0),
        (USED, WRONG, False, -1.0, -0.25),
        (MATCH, RIGHT, True, 1.0, 0.0),
        (MATCH, RIGHT, False, 1.0, 0.0),
        (MATCH, WRONG, True, -1.0, -0.25),
        (MATCH, WRONG, False, -1.0, -0.25),
    ],
)
def test_equation_6_in_both_readings(
    part: Part, condition: str, answer: str, used: bool, accuracy: float, tool: float
) -> None:
    trajectory = ran(program(), answer) if used else ran(answer)
    found = parts(part, trajectory, tool_penalty_condition=condition)
    assert found == {"accuracy": accuracy, "tool": tool}


@given(
    correct=st.booleans(),
    used=st.booleans(),
    condition=st.sampled_from([USED, MATCH]),
    penalty=st.floats(-4, 0),
)
def test_the_parts_are_the_published_formula(
    part: Part, correct: bool, used: bool, condition: Any, penalty: float
) -> None:
    found = part("rewards.math_reward")(
        correct=correct, tool_used=used, condition=condition, penalty=penalty
    )
    asked = used if condition == USED else correct
    expected = with_tool_term(correct, tool_used=asked, penalty=penalty)
    assert sum(found.values()) == pytest.approx(expected, abs=1e-12)


def test_without_a_penalty_accuracy_is_all(part: Part) -> None:
    for condition in (USED, MATCH):
        options = {"tool_penalty": 0.0, "tool_penalty_condition": condition}
        assert reward(part, ran(RIGHT), **options) == 1.0
        assert reward(part, ran(WRONG), **options) == -1.0


@pytest.mark.parametrize(
    ("texts", "answer"),
    [
        ([], None),
        ([""], None),
        (["It is 42."], None),
        (["<answer>42</answer>"], None),
        ([r"\boxed{42"], None),
        ([r"boxed{42}"], None),
        ([r"\boxed{}"], ""),
        ([r"\boxed{ 42 }"], "42"),
        ([r"\boxed{\frac{1}{2}}"], r"\frac{1}{2}"),
        ([r"\boxed{41}, no: \boxed{42}"], "42"),
        ([r"\boxed{42}, then \boxed{"], "42"),
        ([r"\boxed{1}" + program(), r"\boxed{2}"], "2"),
        ([r"\boxed{1}" + program(), "as I said"], "1"),
        ([r"\boxed{1", "}"], None),
    ],
)
def test_the_last_box_of_the_last_turn_with_one_is_the_answer(
    part: Part, texts: list[str], answer: str | None
) -> None:
    assert part("rewards.boxed")(texts) == answer


@pytest.mark.parametrize(
    ("text", "gold", "right"),
    [
        (r"\boxed{42}", "42", True),
        (r"\boxed{042}", "42", True),
        (r"\boxed{+42}", "42", True),
        (r"\boxed{x+1}", "x+1", True),
        (r"\boxed{}", "42", False),
        (r"\boxed{42} or \boxed{41}", "42", False),
        (r"\boxed{41} or \boxed{42}", "42", True),
        ("42", "42", False),
        (r"\boxed{" + "9" * 5000 + "}", "9", False),
    ],
)
def test_what_is_right(part: Part, text: str, gold: str, right: bool) -> None:
    assert parts(part, ran(program(), text, gold=gold))["accuracy"] == (1.0 if right else -1.0)


@pytest.mark.parametrize(
    "stop",
    [
        StopReason.MAX_TURNS,
        StopReason.MAX_RESPONSE_LENGTH,
        StopReason.MAX_ACTION_LENGTH,
        StopReason.NO_ACTION_IN_OUTPUT,
        StopReason.EMPTY_OUTPUT,
    ],
)
def test_what_is_cut_off_has_no_answer(part: Part, stop: StopReason) -> None:
    assert reward(part, ran(program(), RIGHT, stop=stop)) == -1.0
    assert reward(part, ran(RIGHT, stop=stop)) == -1.25
    assert reward(part, ran(stop=stop)) == -1.25


def test_what_a_program_prints_is_no_answer(part: Part) -> None:
    told = CallOutcome(observation=r"\boxed{42}", valid=True)
    assert reward(part, ran(program("tell()"), "There it stands.", outcomes=[told])) == -1.0


@pytest.mark.parametrize(
    ("trajectory", "tool"),
    [
        (ran(program(), RIGHT, outcomes=[RAISED]), 0.0),
        (ran("so ```output", RIGHT, outcomes=[NO_PROGRAM]), -0.25),
        (ran("so ```output", program(), RIGHT, outcomes=[NO_PROGRAM]), 0.0),
        (ran("```python\nprint(6*7)\n```\n" + RIGHT), -0.25),
        (ran(program(), stop=StopReason.MAX_TURNS), -0.25),
        (ran(program(), program(), stop=StopReason.MAX_TURNS), 0.0),
    ],
)
def test_a_tool_is_used_where_a_program_was_run(
    part: Part, trajectory: Trajectory, tool: float
) -> None:
    assert parts(part, trajectory)["tool"] == tool


@pytest.mark.parametrize("options", [{}, {"tool_penalty_condition": MATCH}, {"tool_penalty": 0.0}])
def test_an_evaluation_is_plain_accuracy(part: Part, options: dict[str, Any]) -> None:
    score = part("score.MathReward")(**options)
    right = score(ran(RIGHT, purpose=Purpose.EVAL))
    assert right.reward == right.total == 1.0
    assert {one.name: one.value for one in right.parts} == {
        "accuracy": 1.0, "answered": 1.0, "programs": 0.0, "failed": 0.0,
    }  # fmt: skip
    wrong = score(ran(program(), WRONG, outcomes=[RAISED], purpose=Purpose.EVAL))
    assert wrong.reward == 0.0
    assert {one.name: one.value for one in wrong.parts} == {
        "accuracy": 0.0, "answered": 1.0, "programs": 1.0, "failed": 1.0,
    }  # fmt: skip


def test_training_is_watched_beside_its_reward(part: Part) -> None:
    trajectory = ran(program(), program(), "I give up", outcomes=[RAISED])
    (event,) = part("score.MathReward")()(trajectory).events
    assert event.kind == "measured"
    assert event.data == {"right": 0.0, "answered": 0.0, "programs": 2.0, "failed": 1.0}


@pytest.mark.parametrize(
    "options",
    [
        {"tool_penalty_condition": "used"},
        {"tool_penalty": 0.25},
        {"tool_penalty": float("nan")},
        {"tool_penalty": float("-inf")},
        {"tool_penalty": True},
        {"tool_penalty": "-0.25"},
    ],
)
def test_an_option_that_does_not_fit_is_refused(part: Part, options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(options))):
        part("score.MathReward")(**options)


@given(st.lists(st.text(alphabet="\\boxed{} 42", max_size=60), max_size=3))
def test_an_answer_is_a_piece_of_what_was_written(part: Part, texts: list[str]) -> None:
    found = part("rewards.boxed")(texts)
    assert found is None or any(found in text for text in texts)


def test_reading_is_linear(part: Part) -> None:
    score = part("score.MathReward")()
    assert_linear(lambda text: score(ran(program(), text)), before=r"\boxed{", texts=BOXES)
