"""What happened in a trace, read from the record of a trajectory. Pure.

The author of a text is taken from the record and never from tags in it: a tool's error is what its
outcome says, whatever the policy writes.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from engine.api import read_json_call
from toolwright.json_data import canonical
from toolwright.reading.actions import Tags, calls_in
from toolwright.types import CallOutcome, CallRecord, StopReason, ToolErrorKind, Trajectory

from .answers import CALL, final_answer, intermediate_answer

UNKNOWN_TOOL = "unknown_tool"
"""Type of the error that a call of a tool gets which the session does not have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceCall:
    """tool: "" where the action names none of the session. text: the same for equal calls; of a
    call that cannot be read it is what stands between its tags. malformed: it reached
    no tool, its text, its tool or its arguments were refused. erred: that, or the tool failed, its
    observation did not fit its schema among others."""

    tool: str
    text: str
    malformed: bool
    erred: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """final, intermediate: answers, or None. calls: in their order."""

    final: str | None
    intermediate: str | None
    calls: tuple[TraceCall, ...]

    @property
    def errors(self) -> int:
        return sum(call.erred for call in self.calls)

    @property
    def unrecovered(self) -> int:
        """Errors that no later call corrected: one of the same tool that worked. An action that
        names no tool of the session is corrected by any call that worked."""
        working: set[str] = set()
        count = 0
        for call in reversed(self.calls):
            if not call.erred:
                working.add(call.tool)
            elif not (call.tool in working if call.tool else working):
                count += 1
        return count


def read(trajectory: Trajectory) -> Trace:
    """The trace of a trajectory, as reward functions and filters see it. What was written after the
    environment had ended the trace is no answer."""
    texts = [str(text) for text in trajectory.metadata.get("texts", ())]
    answered = trajectory.stop_reason is StopReason.ANSWERED and bool(texts)
    return Trace(
        final=final_answer(texts[-1]) if answered else None,
        intermediate=intermediate_answer(texts) if answered else None,
        calls=tuple(map(_call, trajectory.calls)),
    )


def invalid_in_a_row(calls: tuple[CallRecord, ...]) -> int:
    """How many of the last calls were refused, one after the other."""
    count = 0
    for call in reversed(calls):
        if call.outcome.valid:
            break
        count += 1
    return count


def _call(call: CallRecord) -> TraceCall:
    said = read_json_call(call.action, f"<{CALL}>", f"</{CALL}>")
    readable = not said.invalid_reason and said.arguments is not None
    malformed = not call.outcome.valid
    return TraceCall(
        tool="" if _names_no_tool(call.outcome) else said.tool,
        text=canonical([said.tool, said.arguments or {}]) if readable else _unread(call.action),
        malformed=malformed,
        erred=malformed or call.outcome.error is not ToolErrorKind.NONE,
    )


def _unread(action: str) -> str:
    """A call that cannot be read, from its opening tag on: thoughts before it, which differ, do not
    make it another one."""
    found = calls_in(action, Tags(f"<{CALL}>", f"</{CALL}>"))
    return action[max(found[-1].start, 0) :] if found else action


def _names_no_tool(outcome: CallOutcome) -> bool:
    """The session has no tool of that name: no later call of it can work."""
    if outcome.error is ToolErrorKind.UNKNOWN_TOOL:
        return True
    if outcome.valid:
        return False
    try:
        told = json.loads(outcome.invalid_reason)
    except (ValueError, RecursionError):
        return False
    error = told.get("error") if isinstance(told, dict) else None
    return isinstance(error, dict) and error.get("type") == UNKNOWN_TOOL
