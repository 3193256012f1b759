"""The SQL recipe's files as modules, as the engine loads them, and trajectories."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tasks.judging.gold_rows import Gold
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

FOLDER = Path(__file__).resolve().parents[3] / "recipes/verltool/sql"
GOLD = Gold(sql="SELECT name, n FROM t", rows=[["a", 1], ["b", 2]], ordered=False)
SHOWN = CallOutcome(observation="n\n1\n(1 row)\n5 turns left.", valid=True)


@pytest.fixture(scope="session")
def part() -> Part:
    return part_of(FOLDER)


def query(sql: str = "SELECT n FROM t") -> str:
    return f"<think>see</think><sql>{sql}</sql>"


def solution(sql: str = "SELECT name, n FROM t") -> str:
    return f"<think>so</think><solution>{sql}</solution>"


def gave(rows: Any, **fields: Any) -> CallOutcome:
    """What the tool says of a solution with these rows."""
    return CallOutcome(
        **{"observation": json.dumps({"rows": rows}), "valid": True, "done": True, **fields}
    )


def ran(
    *texts: str,
    outcomes: Sequence[CallOutcome] | None = None,
    gold: Gold = GOLD,
    purpose: Purpose = Purpose.TRAIN,
) -> Trajectory:
    """A trajectory that wrote these texts, each a call. outcomes: by default of queries that were
    answered, and of a solution that gave the right rows."""
    if outcomes is None:
        outcomes = [*[SHOWN] * (len(texts) - 1), gave(gold.rows)]
    calls = [
        CallRecord(
            call_id=f"c{turn}", turn=turn, index=0, tool="sql", action=texts[turn], outcome=outcome
        )
        for turn, outcome in enumerate(outcomes)
    ]
    return Trajectory(
        id="g-0",
        group_id="g",
        task=Task(id="t", answers=(gold.answer(),), purpose=purpose),
        sequences=(),
        status=Status.COMPLETED,
        stop_reason=StopReason.TOOL_SIGNALED_DONE,
        calls=tuple(calls),
        metadata={"texts": list(texts)},
    )
