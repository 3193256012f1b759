"""VerlTool's visual recipe as the engine loads it, and trajectories that look at pictures."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
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

FOLDER = Path(__file__).resolve().parents[3] / "recipes/verltool/visual"

SHOWN = CallOutcome(observation="Image 2: 120 x 120 pixels\n[image/png]", valid=True, tool="image")
REFUSED = CallOutcome(
    observation="bbox_2d is [left, top, right, bottom]",
    valid=False,
    error=ToolErrorKind.INVALID_ACTION,
    tool="image",
)
BROKEN = CallOutcome(
    observation="the image's file is broken",
    valid=True,
    error=ToolErrorKind.EXCEPTION,
    tool="image",
)


@pytest.fixture(scope="session")
def part() -> Part:
    return part_of(FOLDER)


def look(*box: float, name: str = "crop_image_normalized", **arguments: Any) -> str:
    """An action that crops; the box is given where a test asks where it lies."""
    given = {"bbox_2d": list(box or (0.2, 0.2, 0.3, 0.3)), "target_image": 1, **arguments}
    return f"<tool_call>{json.dumps({'name': name, 'arguments': given})}</tool_call>"


def looked(
    *texts: str,
    outcomes: Sequence[CallOutcome] = (),
    gold: str | Sequence[str] = "7",
    asked: str = "Which number is on the red box?",
    purpose: Purpose = Purpose.TRAIN,
    stop: StopReason = StopReason.ANSWERED,
    status: Status = Status.COMPLETED,
    metadata: Mapping[str, Any] | None = None,
    tool: str = "image",
) -> Trajectory:
    """One that wrote these texts; each with a call has the next outcome, SHOWN without."""
    given = list(outcomes)
    calls = [
        CallRecord(
            call_id=f"c{turn}",
            turn=turn,
            index=0,
            tool=tool,
            action=text,
            outcome=given.pop(0) if given else SHOWN,
        )
        for turn, text in enumerate(texts)
        if text.endswith("</tool_call>")
    ]
    task = Task(
        id="t",
        messages=({"role": "user", "content": asked},),
        answers=(gold,) if isinstance(gold, str) else tuple(gold),
        purpose=purpose,
        metadata=metadata or {},
    )
    return Trajectory(
        id="g-0",
        group_id="g",
        task=task,
        sequences=(),
        status=status,
        stop_reason=stop,
        calls=tuple(calls),
        metadata={"final_text": texts[-1] if texts else ""},
    )
