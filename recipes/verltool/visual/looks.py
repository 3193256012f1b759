"""Where a policy looked: the calls of the image tool in a trajectory's record. Pure.

A look is a call that showed pixels: the tool carried it out, whichever of its functions it named.
A call that it refused, or failed at, showed nothing and does not count.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from engine.api import read_json_call
from toolwright.types import CallRecord, ToolErrorKind, Trajectory

TOOL = "image"
OPEN, CLOSE = "<tool_call>", "</tool_call>"

Box = tuple[float, float, float, float]
"""Left, top, right, bottom, in shares of the picture's sides."""


def looks(trajectory: Trajectory, tool: str = TOOL) -> list[CallRecord]:
    """Calls of the tool that showed something, in order."""
    return [
        call
        for call in trajectory.calls
        if _tool_of(call) == tool
        and call.outcome.valid
        and call.outcome.error is ToolErrorKind.NONE
        and not call.outcome.session_lost
    ]


def refused(trajectory: Trajectory, tool: str = TOOL) -> int:
    """Calls that showed nothing."""
    return sum(_tool_of(call) in (tool, "") for call in trajectory.calls) - len(
        looks(trajectory, tool)
    )


def aimed(calls: Sequence[CallRecord], gold: Any) -> bool | None:
    """Whether a box that was asked for holds the middle of `gold`, a box in shares of the task's
    first image; None where there is no gold box."""
    wanted = _box(gold)
    if wanted is None:
        return None
    x, y = (wanted[0] + wanted[2]) / 2, (wanted[1] + wanted[3]) / 2
    return any(
        left <= x <= right and top <= y <= bottom for left, top, right, bottom in _boxes(calls)
    )


def _tool_of(call: CallRecord) -> str:
    return call.tool or call.outcome.tool


def _boxes(calls: Sequence[CallRecord]) -> Iterator[Box]:
    """Boxes of crops of the first image that are said in shares."""
    for call in calls:
        arguments: Mapping[str, Any] = read_json_call(call.action, OPEN, CLOSE).arguments or {}
        box = _box(arguments.get("bbox_2d"))
        if box is not None and arguments.get("target_image", 1) == 1 and max(box) <= 1:
            yield box


def _box(found: Any) -> Box | None:
    if not isinstance(found, Sequence) or isinstance(found, str) or len(found) != 4:
        return None
    if not all(isinstance(one, int | float) and not isinstance(one, bool) for one in found):
        return None
    left, top, right, bottom = map(float, found)
    return left, top, right, bottom
