"""The spans of a finished trajectory, from its record alone. Pure.

    trajectory
        open            the sessions
        generate        one action, a span each
        call TOOL       from the stop to the answer
            queue, run      as the tool service measured them
        reward

Invariants
- Every span lies within its parent. No two `generate` spans of our own loop overlap.
- No clock is read: the record has stamps of every action and call, and seconds of the rest. The
  service measured `queue` and `run`. Half of the transport's time lies before them, half after.
- Equal records give equal spans: a file made of a journal has the trace that the run sent.

The record of an older engine has no stamps of its actions. Its `generate` spans reach from one
call's answer to the next one's stop, and have the attribute `toolwright.estimated`. Without
`clock_s` times begin in 1970: the record does not say when it was made.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from toolwright.tracing.ids import call_span, root_span, span_id, trace_id
from toolwright.tracing.spans import Span, Value, short
from toolwright.types import ActionTimings, CallRecord, ToolErrorKind, Trajectory

PROCESS = "engine"
LONGEST_S = 4e9
"""Most seconds that a service may report. They reach beyond the year 2090, and sums of a few stay
within 64 bits."""
_NS = 1_000_000_000


def spans_of(run: str, trajectory: Trajectory) -> list[Span]:
    """The root first, then what happened in order. run: see `toolwright.tracing.ids`."""
    return list(_Spans(run, trajectory))


class _Spans:
    """The spans of one trajectory. Times inside are on the clock of its stamps."""

    def __init__(self, run: str, trajectory: Trajectory) -> None:
        self._run = run
        self._trajectory = trajectory
        self._trace = trace_id(run, trajectory.id)
        self._root = root_span(run, trajectory.id)
        self._clock = _ns(trajectory.timings.clock_s)
        self._estimated = not trajectory.action_timings
        self._actions = trajectory.action_timings or _estimated_actions(trajectory)
        timings = trajectory.timings
        stamps = [
            *(stamp for one in self._actions for stamp in (one.asked_ns, one.acted_ns)),
            *(one.timings.result_ns for one in trajectory.calls),
        ]
        first = min((one.asked_ns for one in self._actions), default=_ns(timings.open_s))
        self._began = max(0, first - _ns(timings.open_s))
        self._opened = first
        # The seconds of a trajectory that a restarted engine went on with leave the pause out.
        self._ended = max(self._began + _ns(timings.wall_s), *stamps, first)
        self._over = self._ended + _ns(timings.reward_s)

    def __iter__(self) -> Iterator[Span]:
        yield self._whole()
        yield self._span("open", self._began, self._opened)
        for number, action in enumerate(self._actions):
            yield self._generate(number, action)
        for call in self._trajectory.calls:
            yield from self._call(call)
        yield self._span(
            "reward",
            self._ended,
            self._over,
            attributes={"reward": self._trajectory.reward, "masked": self._trajectory.masked},
        )

    def _whole(self) -> Span:
        trajectory = self._trajectory
        attributes: dict[str, Value] = {
            "trajectory": trajectory.id,
            "group": trajectory.group_id,
            "task": short(trajectory.task.id),
            "lane": trajectory.task.purpose.name.lower(),
            "attempt": trajectory.attempt,
            "status": trajectory.status.name.lower(),
            "stop_reason": trajectory.stop_reason.name.lower(),
            "turns": trajectory.turns,
            "tokens": trajectory.response_tokens,
            "calls": len(trajectory.calls),
            "reward": trajectory.reward,
        }
        parents = [one.parent for one in trajectory.sequences if one.parent]
        if parents:
            attributes["branch_of"] = parents[0]
        failed = [one for one in trajectory.events if one.kind == "attempt_failed"]
        return self._span(
            "trajectory",
            self._began,
            self._over,
            parent="",
            attributes=attributes,
            error=str(failed[-1].data.get("error", "")) if failed else "",
        )

    def _generate(self, number: int, action: ActionTimings) -> Span:
        written = [one for one in self._trajectory.written if one.turn == action.turn]
        attributes: dict[str, Value] = {
            "turn": action.turn,
            "tokens": sum(len(segment.token_ids) for segment in written),
        }
        versions = dict.fromkeys(str(one.weight_version) for one in written if one.weight_version)
        if versions:
            attributes["weight_versions"] = short(" ".join(versions))
        if action.first_ns > action.asked_ns:
            attributes["first_token_s"] = (action.first_ns - action.asked_ns) / _NS
        if self._estimated:
            attributes["estimated"] = True
        return self._span(
            "generate",
            action.asked_ns,
            action.acted_ns,
            part=f"generate {number}",
            attributes=attributes,
        )

    def _call(self, call: CallRecord) -> Iterator[Span]:
        timings, outcome = call.timings, call.outcome
        start = timings.dispatched_ns or timings.stop_read_ns or timings.result_ns
        end = max(start, timings.result_ns)
        error = outcome.error
        parent = call_span(self._run, call.call_id)
        yield self._span(
            f"call {short(call.tool) or 'unknown'}",
            min(timings.stop_read_ns or start, start),
            end,
            id=parent,
            attributes={
                "turn": call.turn,
                "call": short(call.call_id),
                "tool": short(call.tool),
                "valid": outcome.valid,
                "truncated": outcome.truncated,
            },
            error="" if error is ToolErrorKind.NONE else error.name.lower(),
        )
        if not (outcome.queued_s or outcome.run_s):
            return
        way = max(0, end - start - _ns(outcome.queued_s) - _ns(outcome.run_s))
        queued_at = min(end, start + way // 2)
        ran_at = min(end, queued_at + _ns(outcome.queued_s))
        done = min(end, ran_at + _ns(outcome.run_s))
        for name, start, end in (("queue", queued_at, ran_at), ("run", ran_at, done)):
            yield self._span(
                name,
                start,
                end,
                id=span_id(self._run, call.call_id, name),
                parent=parent,
            )

    def _span(
        self,
        name: str,
        start: int,
        end: int,
        *,
        part: str = "",
        id: str = "",
        parent: str | None = None,
        attributes: dict[str, Value] | None = None,
        error: str = "",
    ) -> Span:
        start = min(max(start, self._began), self._over)
        return Span(
            trace=self._trace,
            id=id or span_id(self._run, self._trajectory.id, part or name),
            parent=self._root if parent is None else parent,
            name=name,
            start_ns=self._clock + start,
            end_ns=self._clock + min(max(end, start), self._over),
            process=PROCESS,
            attributes={f"toolwright.{key}": value for key, value in (attributes or {}).items()},
            error=short(error),
        )


def _estimated_actions(trajectory: Trajectory) -> Sequence[ActionTimings]:
    """Estimates when actions were written, from their calls' stamps. A turn begins with the answer
    before it. The first turn gets the `generate_s` that no other turn accounts for. Without a call
    there is one action, of all seconds."""
    timings, found = trajectory.timings, list[ActionTimings]()
    opened = _ns(timings.open_s)
    stamped = [one for one in trajectory.calls if one.timings.stop_read_ns]
    if not stamped:
        whole = ActionTimings(turn=0, asked_ns=opened, acted_ns=opened + _ns(timings.generate_s))
        return [whole] if timings.generate_s else []
    before = 0
    for turn in sorted({one.turn for one in stamped}):
        calls = [one for one in stamped if one.turn == turn]
        acted = max(one.timings.stop_read_ns for one in calls)
        asked = before or max(opened, acted - _ns(timings.generate_s))
        found.append(ActionTimings(turn=turn, asked_ns=min(asked, acted), acted_ns=acted))
        before = max(one.timings.result_ns for one in calls)
    return found


def _ns(seconds: float) -> int:
    return round(min(max(seconds, 0.0), LONGEST_S) * _NS)
