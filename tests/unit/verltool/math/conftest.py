"""Files of VerlTool's mathematics task as modules, as the engine loads them, and trajectories."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.support.recipes import Part, part_of
from toolwright.types import (
    CallOutcome,
    CallRecord,
    Purpose,
    Status,
    StopReason,
    Task,
    ToolErrorKind,
    Trajectory,
)

FOLDER = Path(__file__).resolve().parents[4] / "recipes/verltool/math"
STOP = "```output"
BOXES = (
    r"\boxed{",
    r"\boxed{}",
    r"\boxed",
    r"\boxed {",
    "{}",
    "{",
    "}",
    r"\{",
    "\\",
    "```python\n",
)
"""Pieces of long texts: what a search for boxes and programs could stumble over."""


@pytest.fixture(scope="session")
def part() -> Part:
    return part_of(FOLDER)


def program(code: str = "print(6*7)") -> str:
    """An action that runs a program."""
    return f"So:\n```python\n{code}\n```\n{STOP}"


PRINTED = CallOutcome(observation="42", valid=True)
RAISED = CallOutcome(observation="Traceback", valid=True, error=ToolErrorKind.EXCEPTION)
NO_PROGRAM = CallOutcome(
    observation="", valid=False, invalid_reason="no block", error=ToolErrorKind.INVALID_ACTION
)


def ran(
    *texts: str,
    outcomes: Sequence[CallOutcome] = (),
    gold: str = "42",
    purpose: Purpose = Purpose.TRAIN,
    stop: StopReason = StopReason.ANSWERED,
) -> Trajectory:
    """A trajectory that wrote these texts. Those that stop for output, but for the last text of a
    trajectory that had no turn left, have the next outcome each, PRINTED without."""
    given = list(outcomes)
    asked = texts[:-1] if stop is StopReason.MAX_TURNS else texts
    calls = [
        CallRecord(
            call_id=f"c{turn}",
            turn=turn,
            index=0,
            tool="python",
            action=text,
            outcome=given.pop(0) if given else PRINTED,
        )
        for turn, text in enumerate(asked)
        if text.endswith(STOP)
    ]
    return Trajectory(
        id="g-0",
        group_id="g",
        task=Task(id="t", answers=(gold,), purpose=purpose),
        sequences=(),
        status=Status.COMPLETED,
        stop_reason=stop,
        calls=tuple(calls),
        metadata={"texts": list(texts)},
    )
