"""MTR's files as modules, as the engine loads them, and trajectories."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

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

FOLDER = Path(__file__).resolve().parents[3] / "recipes/mtr"


@pytest.fixture(scope="session")
def part() -> Part:
    return part_of(FOLDER)


def call(name: str = "find_mayor", **arguments: Any) -> str:
    """An action that makes a call."""
    body = json.dumps({"name": name, "arguments": arguments})
    return f"<think>so</think><tool_call>{body}</tool_call>"


def answer(final: str, reasoned: str = "") -> str:
    thought = f"the answer is {reasoned}." if reasoned else "done"
    return f"<think>{thought}</think><answer>{final}</answer>"


OK = CallOutcome(observation='{"mayor": "Alda"}', valid=True)
REFUSED = CallOutcome(
    observation="", valid=False, invalid_reason="no", error=ToolErrorKind.INVALID_ACTION
)
FAILED = CallOutcome(observation="{}", valid=True, error=ToolErrorKind.EXCEPTION)


def ran(
    *texts: str,
    outcomes: Sequence[CallOutcome] = (),
    gold: str | Sequence[str] = "Paris",
    purpose: Purpose = Purpose.TRAIN,
    stop: StopReason = StopReason.ANSWERED,
) -> Trajectory:
    """A trajectory that wrote these texts; each with a call has the next outcome, OK without."""
    given = list(outcomes)
    made = [turn for turn, text in enumerate(texts) if text.endswith("</tool_call>")]
    calls = [
        CallRecord(
            call_id=f"c{turn}",
            turn=turn,
            index=0,
            tool="",
            action=texts[turn],
            outcome=given.pop(0) if given else OK,
        )
        for turn in made
    ]
    golds = (gold,) if isinstance(gold, str) else tuple(gold)
    return Trajectory(
        id="g-0",
        group_id="g",
        task=Task(id="t", answers=golds, purpose=purpose),
        sequences=(),
        status=Status.COMPLETED,
        stop_reason=stop,
        calls=tuple(calls),
        metadata={"texts": list(texts)},
    )
