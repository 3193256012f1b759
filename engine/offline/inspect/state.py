"""`engine inspect` as data: the state of a run, or one trajectory as a timeline.

Everything is read from the run folder, also while an engine serves it. `show` prints the data.
"""

from __future__ import annotations

import difflib
import json
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from engine.core.trajectory import events as log_events
from engine.core.trajectory.state import State, fold
from engine.errors import StartupError
from engine.serving.journal.groups import Fate
from engine.serving.journal.logs import LogState, trajectory_of
from engine.serving.journal.reader import JournalReader, LoggedAttempt, reading
from toolwright.reading.files import open_regular
from toolwright.recipe import RecipeError, read_resolved
from toolwright.types import (
    Author,
    CallRecord,
    Event,
    Ids,
    Segment,
    Status,
    Trajectory,
)

Decode = Callable[[Ids], str]
"""Turns token ids into text, by the policy's tokenizer."""

ERRORS = 5
TAIL_BYTES = 1 << 20
"""Bytes at the end of engine.jsonl that are searched for errors."""
_BAD = ("warning", "error", "critical")


def run_state(run_folder: Path) -> dict[str, Any]:
    """The state of a run. Raises StartupError for a folder without one."""
    with reading(run_folder) as reader:
        counts, version = reader.counts(), reader.version()
        delivered = counts.arrived - counts.waiting - counts.dropped_groups
        return {
            "run": str(run_folder),
            "engine_lives": reader.engine_lives,
            "version": str(version[0]) if version else None,
            "weights": str(version[1]) if version else None,
            "groups": {
                "waiting": counts.waiting,
                "delivered": delivered,
                "dropped": counts.dropped_groups,
                "turned_away": counts.turned_away,
                "skipped": counts.skipped,
            },
            "trajectories_accepted": counts.accepted,
            "skipped": [
                {"position": position, "reason": reason} for position, reason in reader.skipped()
            ],
            "in_flight": [_in_flight(reader, one, rows) for one, rows in reader.open_logs()],
            "last_errors": last_errors(run_folder / "engine.jsonl"),
        }


def trajectory_state(run_folder: Path, name: str, decode: Decode | None = None) -> dict[str, Any]:
    """One trajectory, turn by turn. Raises StartupError for an unknown name.

    name: a trajectory, or one of its attempts as `run_state` names them.
    """
    name = name.partition("/")[0]
    with reading(run_folder) as reader:
        attempts = reader.attempts(*LogState, trajectory=name)
        found = reader.record(name)
        common: dict[str, Any] = {
            "trajectory": name,
            "attempts": [
                {"attempt": one.name, "state": one.state.name.lower(), "age_s": round(one.age_s, 3)}
                for one in attempts
            ],
        }
        if found is not None:
            group = {
                "group": found.group,
                "sequence": found.sequence,
                "dropped": found.fate is Fate.STALE,
                "turned_away": found.fate is Fate.TURNED_AWAY,
            }
            return common | group | record_details(found.trajectory(), decode)
        if attempts:
            state = _folded(reader, attempts[-1].name)
            return common | {"attempt": attempts[-1].name} | state_details(state, decode)
        raise unknown_trajectory(reader, name)


def record_details(trajectory: Trajectory, decode: Decode | None = None) -> dict[str, Any]:
    """A finished trajectory."""
    return {
        "task": trajectory.task.id,
        "status": trajectory.status.name,
        "stop_reason": trajectory.stop_reason.name,
        "reward": trajectory.reward,
        "reward_parts": [
            {"name": part.name, "value": part.value, "turn": part.turn}
            for part in trajectory.reward_parts
        ],
        "masked": trajectory.masked,
        "why_masked": why_masked(trajectory),
        "outside_baseline": trajectory.outside_baseline,
        "anchors": {str(turn): list(names) for turn, names in trajectory.anchors.items()},
        "seconds": {
            "wall": trajectory.timings.wall_s,
            "open": trajectory.timings.open_s,
            "generate": trajectory.timings.generate_s,
            "tool": trajectory.timings.tool_s,
            "reward": trajectory.timings.reward_s,
        },
        "timeline": list(
            timeline(trajectory.segments, trajectory.calls, trajectory.events, decode)
        ),
    }


def state_details(state: State, decode: Decode | None = None) -> dict[str, Any]:
    """A trajectory whose group is not complete; an image counts as one token."""
    ended = state.ended
    return {
        "status": "IN_FLIGHT" if ended is None else "ENDED",
        "stop_reason": ended.reason.name if ended else None,
        "error": ended.error if ended else "",
        "turn": state.turn,
        "reward": state.score.reward if state.score else None,
        "seconds": {"open": state.open_s, "generate": state.generate_s, "tool": state.tool_s},
        "waits_for": [one.call_id for one in state.open_calls],
        "unfinished_tokens": len(state.partial.token_ids) if state.partial else 0,
        "timeline": list(timeline(state.history, state.calls, state.events, decode)),
    }


def timeline(
    segments: Sequence[Segment],
    calls: Sequence[CallRecord],
    events: Sequence[Event],
    decode: Decode | None = None,
) -> Iterator[dict[str, Any]]:
    """Entries in order: tokens with their author, a turn's calls after its action, then its
    events."""
    position, with_calls = 0, set[int]()
    turns = [one.turn for one in segments] + [one.turn for one in calls]
    last = max([*turns, *(event.turn for event in events)], default=-1)
    for turn in range(last + 1):
        for segment in (one for one in segments if one.turn == turn):
            if segment.author not in (Author.PROMPT, Author.MODEL) and turn not in with_calls:
                with_calls.add(turn)
                yield from _calls(calls, turn)
            yield _tokens(segment, position, decode)
            position += len(segment.token_ids)
        if turn not in with_calls:
            yield from _calls(calls, turn)
        for event in (one for one in events if one.turn == turn):
            yield {"kind": "event", "turn": turn, "event": event.kind, "data": dict(event.data)}


def why_masked(trajectory: Trajectory) -> str:
    """The reason; "" for a trajectory that is not masked."""
    if not trajectory.masked:
        return ""
    failed = [event for event in trajectory.events if event.kind.endswith("_failed")]
    if failed:
        return f"{failed[-1].kind}: {failed[-1].data.get('error', '')}"
    if trajectory.status is Status.ERRORED:
        return "infrastructure failed in all attempts"
    return "by the reward function, or by a rule for this stop reason"


def policy_text(run_folder: Path) -> Decode | None:
    """The decoder of the run's policy; None if its folder is missing."""
    from engine.core.text.codec import HuggingFaceCodec  # only where texts are shown

    try:
        recipe = read_resolved(run_folder / "engine.resolved.json")
        return HuggingFaceCodec(recipe.resolve(recipe.shared.policy.model)).decode
    except (RecipeError, StartupError):
        return None


def last_errors(file: Path) -> list[dict[str, Any]]:
    """The last warnings and errors of the engine's log, oldest first."""
    try:
        with open_regular(file) as stream:
            stream.seek(max(0, os.fstat(stream.fileno()).st_size - TAIL_BYTES))
            lines = stream.read().splitlines()
    except OSError:
        return []
    found: list[dict[str, Any]] = []
    for line in reversed(lines):
        try:
            entry = json.loads(line)
        except ValueError:  # a line that is cut, at either end
            continue
        if isinstance(entry, dict) and entry.get("level") in _BAD:
            found.append(entry)
        if len(found) == ERRORS:
            break
    return found[::-1]


def _tokens(segment: Segment, position: int, decode: Decode | None) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "kind": "tokens",
        "turn": segment.turn,
        "author": segment.author.name,
        "position": position,
        "tokens": len(segment.token_ids),
        "trainable": segment.trainable,
        "version": str(segment.weight_version) if segment.weight_version else None,
        "images": [ref.blob.sha256 for ref in segment.media],
        "text": decode(segment.token_ids) if decode else None,
    }
    if segment.finish is not None:
        matched = segment.finish.matched_text or segment.finish.matched_token
        entry["finish"] = segment.finish.kind.name
        entry["matched"] = matched
    return entry


def _calls(calls: Sequence[CallRecord], turn: int) -> Iterator[dict[str, Any]]:
    for call in sorted((one for one in calls if one.turn == turn), key=lambda one: one.index):
        outcome, stamps = call.outcome, call.timings
        answered = stamps.result_ns - stamps.dispatched_ns
        yield {
            "kind": "call",
            "turn": turn,
            "call_id": call.call_id,
            "tool": call.tool,
            "action": call.action,
            "observation": outcome.observation,
            "valid": outcome.valid,
            "invalid_reason": outcome.invalid_reason,
            "error": outcome.error.name,
            "done": outcome.done,
            "queued_s": outcome.queued_s,
            "run_s": outcome.run_s,
            "answered_s": answered / 1e9 if stamps.dispatched_ns and answered > 0 else None,
        }


def _in_flight(
    reader: JournalReader, attempt: LoggedAttempt, rows: Sequence[bytes]
) -> dict[str, Any]:
    entry: dict[str, Any] = {"attempt": attempt.name, "age_s": round(attempt.age_s, 3)}
    try:
        events = [event for data in rows for event in log_events.decode(data)]
        if events and isinstance(events[0], log_events.Forked):
            events = reader.log(attempt.name)
        state = fold(events)
    except ValueError as error:
        return entry | {"error": f"its log cannot be read: {error}"}
    return entry | {
        "turn": state.turn,
        "response_tokens": state.response_ids,
        "doing": _doing(state),
    }


def _doing(state: State) -> str:
    if state.ended is not None:
        return "waits for its group" if state.score else f"ended: {state.ended.reason.name}"
    if state.forest is not None:
        calls = len(state.forest.open_calls)
        return f"generates for {calls} calls of its agent" if calls else "waits for its agent"
    if state.open_calls:
        return f"calls {', '.join(one.tool or one.service for one in state.open_calls)}"
    return "generates" if state.opened else "opens"


def _folded(reader: JournalReader, attempt: str) -> State:
    try:
        return fold(reader.log(attempt))
    except ValueError as error:
        raise StartupError(f"the log of {attempt} cannot be read: {error}") from error


def unknown_trajectory(reader: JournalReader, name: str) -> StartupError:
    """The error for a name without records: the reason, or similar names."""
    if reader.was_turned_away(name):
        return StartupError(
            f"the journal has not kept {name}: its group had no signal and was discarded; set "
            'engine.history = "all" to keep such groups'
        )
    if reader.was_delivered(name):
        return StartupError(
            f"the journal has deleted {name}: its group was delivered and acknowledged; set "
            'engine.history = "all" to keep such groups'
        )
    known = reader.trajectories()
    near = difflib.get_close_matches(trajectory_of(name) or name, known, n=5, cutoff=0.5)
    shown = ", ".join(near or known[:5]) or "none"
    return StartupError(f"no trajectory {name} in this run; {'near' if near else 'some'}: {shown}")
