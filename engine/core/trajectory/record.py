"""The record of a trajectory: a view of the folded state. Pure.

The same state gives the same record, byte for byte, in every life of the engine.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

from engine.core.rewards.reported import REPORTED
from engine.core.trajectory.chain import ImageSlot
from engine.core.trajectory.state import State
from toolwright.types import (
    Author,
    Event,
    MediaRef,
    Segment,
    Sequence,
    Status,
    StopReason,
    Task,
    Trajectory,
    TrajectoryTimings,
    ids,
)

UNSEEN = 1
"""Placeholder tokens of an image that was never sent to a sampler."""

_STATUS = {
    StopReason.MAX_TURNS: Status.TRUNCATED,
    StopReason.MAX_RESPONSE_LENGTH: Status.TRUNCATED,
    StopReason.MAX_ACTION_LENGTH: Status.TRUNCATED,
    StopReason.MAX_MODEL_LENGTH: Status.TRUNCATED,
    StopReason.MAX_IMAGE_BYTES: Status.TRUNCATED,
    StopReason.TRAJECTORY_TIMEOUT: Status.TIMED_OUT,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """Identity of a trajectory."""

    trajectory_id: str
    group_id: str
    index: int
    attempt: int
    """Number of the attempt, from 0."""
    task: Task
    tokenizer_hash: str
    placeholder: int | None = None
    """Id that stands for an image; None for a policy that reads only text."""
    orphan: bool = False
    """The attempt that it branched from was given up, so its first tokens are no other member's.
    Its sequence then names that attempt as its parent."""


def record(state: State, identity: Identity) -> Trajectory:
    """The trajectory of a finished attempt's state. Raises ValueError before its end."""
    ended, score = state.ended, state.score
    if ended is None:
        raise ValueError(f"{identity.trajectory_id} has not ended")
    errored = bool(ended.error)
    events = state.events
    if errored:
        failed = Event(kind="attempt_failed", turn=state.turn, data={"error": ended.error})
        events = (*events, failed)
    return Trajectory(
        id=identity.trajectory_id,
        group_id=identity.group_id,
        index=identity.index,
        attempt=identity.attempt,
        task=identity.task,
        sequences=() if errored else sequences(state, identity),
        calls=state.calls,
        events=(*events, *(score.notes if score else ())),
        status=Status.ERRORED if errored else _STATUS.get(ended.reason, Status.COMPLETED),
        stop_reason=ended.reason,
        reward=score.reward if score else 0.0,
        reward_parts=score.parts if score else (),
        masked=score.masked if score else errored,
        outside_baseline=score.outside_baseline if score else errored,
        anchors=score.anchors if score else {},
        timings=TrajectoryTimings(
            wall_s=ended.seconds,
            generate_s=state.generate_s,
            tool_s=state.tool_s,
            open_s=state.open_s,
            reward_s=score.seconds if score else 0.0,
            clock_s=state.clock_s,
        ),
        action_timings=state.action_timings,
        tokenizer_hash=identity.tokenizer_hash,
        metadata=_metadata(state),
    )


def _metadata(state: State) -> dict[str, Any]:
    found: dict[str, Any] = {"final_text": state.last_text}
    if state.ended is not None and state.ended.answer is not None:
        found["answer"] = state.ended.answer
    if state.reported is not None:
        found[REPORTED] = {
            "reward": state.reported.reward,
            "parts": [asdict(part) for part in state.reported.parts],
        }
    return found


def sequences(state: State, identity: Identity) -> tuple[Sequence, ...]:
    """One sequence of our own loop, or those of an outside agent in the order of their turns."""
    if state.forest is None:
        return (sequence(state, identity),)
    name = identity.trajectory_id
    return tuple(
        Sequence(
            id=f"{name}.{number}",
            segments=path.chain.segments,
            parent=None if path.parent is None else f"{name}.{path.parent}",
            fork_offset=None if path.parent is None else path.shared,
            agent=path.agent,
        )
        for number, path in enumerate(state.forest.paths())
    )


def is_orphan(state: State, attempts: Collection[str]) -> bool:
    """Whether this is a branch of an attempt that is not among `attempts`, those with records in
    the group."""
    return state.fork is not None and state.fork.parent not in attempts


def with_texts(trajectory: Trajectory, state: State) -> Trajectory:
    """The trajectory as reward functions and group hooks see it. Its metadata also hold the texts
    of all actions, `texts`. `anchors` and `metadata` are copies, which a function may change."""
    texts = [action.text for action in state.actions]
    metadata = {**trajectory.metadata, "texts": texts}
    return replace(trajectory, anchors={**trajectory.anchors}, metadata=metadata)


def sequence(state: State, identity: Identity) -> Sequence:
    """All tokens, with images expanded, in order."""
    name = f"{identity.trajectory_id}.0"
    segments = state.segments
    if identity.placeholder is not None and state.images:
        slots = iter(state.images)
        segments = tuple(_expanded(one, slots, identity.placeholder) for one in segments)
    if state.fork is None:
        return Sequence(id=name, segments=segments)
    parent = state.fork.parent
    if not identity.orphan:
        parent, _, _ = parent.rpartition("/")
    shared = state.token_ids[: state.fork.offset]
    offset = len(shared)
    if identity.placeholder is not None:
        shown = state.images[: shared.count(identity.placeholder)]
        offset += sum((slot.tokens or UNSEEN) - 1 for slot in shown)
    return Sequence(id=name, segments=segments, parent=f"{parent}.0", fork_offset=offset)


def _expanded(segment: Segment, slots: Iterator[ImageSlot], placeholder: int) -> Segment:
    if segment.author is Author.MODEL:
        return segment
    shown, token_ids, media, begin = segment.token_ids, ids(), [], 0
    for _ in range(shown.count(placeholder)):
        slot = next(slots, None)
        if slot is None:
            raise ValueError("more placeholders than images")
        at = shown.index(placeholder, begin)
        token_ids += shown[begin:at]
        tokens = slot.tokens or UNSEEN
        media.append(
            MediaRef(blob=slot.blob, token_offset=len(token_ids), placeholder_tokens=tokens)
        )
        token_ids += ids([placeholder]) * tokens
        begin = at + 1
    return replace(segment, token_ids=token_ids + shown[begin:], media=tuple(media))
