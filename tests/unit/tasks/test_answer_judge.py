"""Words or mathematics: what decides, and that a process has one judge of expressions."""

from __future__ import annotations

from typing import Any

import pytest

from tasks.judging.answer_judge import AnswerJudge, Kind
from tasks.judging.symbols import shared_judge
from toolwright.types import Task

pytestmark = pytest.mark.quick


def task(*golds: str, **metadata: Any) -> Task:
    return Task(id="t", answers=golds, metadata=metadata)


@pytest.mark.parametrize(
    ("kind", "row", "mathematical"),
    [
        ("words", task("x+1", task="math"), False),
        ("math", task("Paris", task="qa"), True),
        ("auto", task("12", task="math"), True),
        ("auto", task("x+1", task="qa"), False),
        ("auto", task("x+1"), True),
        ("auto", task(r"\frac{1}{2}", "0.5"), True),
        ("auto", task("(1,2)", "one and two"), False),
        ("auto", task("Paris"), False),
        ("auto", task("B"), False),
        ("auto", task(), False),
        ("auto", task("x+1", task=None), True),
    ],
)
def test_the_rows_task_decides_unless_the_recipe_does(
    kind: Kind, row: Task, mathematical: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    class Judge:
        def right(self, answer: str, golds: tuple[str, ...]) -> bool:
            asked.append(answer)
            return False

    monkeypatch.setattr("tasks.judging.answer_judge.shared_judge", Judge)
    AnswerJudge(kind).right("said", row)
    assert bool(asked) is mathematical


def test_a_process_has_one_judge_of_expressions() -> None:
    assert shared_judge() is shared_judge(5.0, 2)
    assert shared_judge(5.0, 2) is not shared_judge(1.0, 1)


@pytest.mark.parametrize(
    ("answer", "row", "f1"),
    [
        ("new york", task("New York City"), 0.8),
        ("12", task("1/2", task="qa"), 0.0),
        ("-5 dollars", task("5 dollars", task="qa"), 0.0),
        ("12", task("12 monkeys", "3", task="qa"), 2 / 3),
        ("-3", task("3", task="math"), 0.0),
        ("7", task("7", task="math"), 1.0),
        ("", task("the"), 0.0),
        (None, task("the"), 0.0),
    ],
)
def test_a_wrong_number_shares_nothing(answer: str | None, row: Task, f1: float) -> None:
    assert AnswerJudge().f1(answer, row) == pytest.approx(f1)


@pytest.mark.parametrize(
    ("answer", "gold", "right"),
    [("4", "4.00001", True), ("50%", "50", True), ("-3", "3", False), ("3", "4", False)],
)
def test_close_numbers_are_one_whatever_the_judge(answer: str, gold: str, right: bool) -> None:
    assert AnswerJudge("math").right(answer, task(gold)) is right
    assert AnswerJudge("words").right(answer, task(gold)) is right
