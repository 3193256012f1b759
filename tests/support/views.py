"""What a protocol sees, for tests that call one alone."""

from __future__ import annotations

from collections.abc import Sequence

from engine.types import End, ToolSpec, View
from toolwright.types import CallRecord, StopReason, Task

EMPTY = End(reason=StopReason.EMPTY_OUTPUT)


def view_of(
    tools: Sequence[ToolSpec] = (), *, actions: Sequence[str] = (), calls: Sequence[CallRecord] = ()
) -> View:
    """A trajectory in which `actions` were written and `calls` answered."""
    return View(
        task=Task(id="t"),
        turn=len(actions),
        actions=tuple(actions),
        calls=tuple(calls),
        events=(),
        tools=tuple(tools),
    )
