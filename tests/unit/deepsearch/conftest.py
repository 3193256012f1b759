"""Deep search's files as modules, as the engine loads them, and trajectories."""

from __future__ import annotations

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
    Trajectory,
)

FOLDER = Path(__file__).resolve().parents[3] / "recipes/verltool/deepsearch"


@pytest.fixture(scope="session")
def part() -> Part:
    return part_of(FOLDER)


def ran(
    last: str,
    *tools: str,
    unread: Sequence[str] = (),
    gold: str | Sequence[str] = "42",
    stop: StopReason = StopReason.ANSWERED,
    **task: Any,
) -> Trajectory:
    """A trajectory that called these tools, tried those that could not read its call, and ended
    with the text `last`."""
    made = [*((tool, True) for tool in tools), *((tool, False) for tool in unread)]
    calls = [
        CallRecord(
            call_id=f"c{turn}",
            turn=turn,
            index=0,
            tool=tool,
            action=f"<{tool}>",
            outcome=CallOutcome(observation="", valid=valid, tool=tool if valid else ""),
        )
        for turn, (tool, valid) in enumerate(made)
    ]
    golds = (gold,) if isinstance(gold, str) else tuple(gold)
    return Trajectory(
        id="g-0",
        group_id="g",
        task=Task(id="t", answers=golds, **{"purpose": Purpose.TRAIN, **task}),
        sequences=(),
        status=Status.COMPLETED,
        stop_reason=stop,
        calls=tuple(calls),
        metadata={"texts": [*(call.action for call in calls), last]},
    )
