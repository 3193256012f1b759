"""The outside agent's recipe: its tool, its warm-up, its reward, and what both loops read."""

from __future__ import annotations

import json
from itertools import islice
from types import ModuleType

import pytest

from ingress.readers.registry import make_reader
from ingress.types import ReadCall
from tests.support.finished_trajectories import trajectory
from toolwright.imports import load_file
from toolwright.process.packaged import packaged
from toolwright.types import StopReason, Task

FOLDER = packaged("recipes/outside")


@pytest.fixture(scope="module")
def demonstrations() -> ModuleType:
    return load_file(FOLDER / "demonstrations.py")


@pytest.mark.parametrize(
    ("expression", "result"),
    [("241*37", "8917"), ("7 // 2", "3"), ("1-2", "-1"), ("1//0", "error"), ("1+1+1", "error"),
     ("9" * 10 + "+1", "error"), ("print(1)", "error")],
)  # fmt: skip
def test_the_tool_works_out_one_operation(expression: str, result: str) -> None:
    assert load_file(FOLDER / "calculator.py").calculate(expression) == result


def test_a_demonstrated_call_is_one_for_the_ingress(demonstrations: ModuleType) -> None:
    reader = make_reader("hermes", [demonstrations.TOOL])
    pieces = [*reader.feed(demonstrations.written_call("1+2")), *reader.end()]
    (call,) = pieces
    assert isinstance(call, ReadCall)
    assert (call.name, json.loads(call.arguments)) == ("calculate", {"expression": "1+2"})


def test_the_warm_up_is_right_for_half_of_the_wordings(demonstrations: ModuleType) -> None:
    task = load_file(FOLDER / "task.py")
    asked = list(islice(task.questions(1, held=False), 8))
    assert len({(one.operation, one.wording) for one in asked}) == 8
    right = [demonstrations.habit(one.operation, one.wording) == one.operation for one in asked]
    assert sum(right) == 4


def test_held_out_operands_are_never_trained_on() -> None:
    task = load_file(FOLDER / "task.py")
    seen, held = (
        {(one.a, one.b) for one in islice(task.questions(1, held=held), 4000)}
        for held in (False, True)
    )
    assert not seen & held


@pytest.mark.parametrize(
    ("text", "stop", "reward"),
    [
        ("8917", StopReason.ANSWERED, 1.0),
        (" 8917\n", StopReason.ANSWERED, 1.0),
        ("It is 8917", StopReason.ANSWERED, 0.0),
        ("8918", StopReason.ANSWERED, 0.0),
        ("8917", StopReason.TRAJECTORY_TIMEOUT, 0.0),
    ],
)
def test_the_reward_reads_the_last_message(text: str, stop: StopReason, reward: float) -> None:
    one = trajectory(
        task=Task(id="q", answers=("8917",)), stop_reason=stop, metadata={"final_text": text}
    )
    assert load_file(FOLDER / "task.py").score(one) == {"correct": reward}
