"""The recipe's files as modules, as the engine loads them, and trajectories."""

from __future__ import annotations

from collections.abc import Mapping
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

FOLDER = Path(__file__).resolve().parents[3] / "recipes/verltool/swe"


@pytest.fixture(scope="session")
def part() -> Part:
    return part_of(FOLDER)


def submitted(reward: float | None, **metrics: float) -> CallOutcome:
    text = "Submitted."
    return CallOutcome(observation=text, valid=True, done=True, reward=reward, metrics=metrics)


def failed(kind: ToolErrorKind) -> CallOutcome:
    return CallOutcome(observation="it failed", valid=True, error=kind)


def ran(
    *outcomes: CallOutcome,
    stop: StopReason = StopReason.TOOL_SIGNALED_DONE,
    status: Status = Status.COMPLETED,
    purpose: Purpose = Purpose.TRAIN,
    metadata: Mapping[str, str] | None = None,
) -> Trajectory:
    """A trajectory with these calls."""
    return Trajectory(
        id="g-0",
        group_id="g",
        task=Task(id="pages", purpose=purpose, metadata=metadata or {}),
        sequences=(),
        status=status,
        stop_reason=stop,
        calls=tuple(
            CallRecord(call_id=f"c{n}", turn=n, index=0, tool="swe", action="", outcome=outcome)
            for n, outcome in enumerate(outcomes)
        ),
    )
