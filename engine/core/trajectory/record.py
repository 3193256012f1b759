"""The record of a trajectory: a view of the folded state. Pure.

The same state gives the same record, byte for byte, in every life of the engine.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

from engine.core.rewards.reported import REPORTED
from engine.core.trajectory.chain import Chain, ImageSlot
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
    weighed,
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
    errored, weights = bool(ended.error), score.weights if score else {}
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
        sequences=() if errored else weighed(sequences(state, identity), weights),
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


def sequences(state: State, identity: Identity) -> list[Sequence]:
    """One for each context, with images expanded, oldest first. Those of an outside agent in the
    order of their turns."""
    name, mark = identity.trajectory_id, identity.placeholder
    if state.forest is not None:
        return [
            Sequence(
                id=f"{name}.{number}",
                segments=path.segments,
                parent=None if path.parent is None else f"{name}.{path.parent}",
                fork_offset=None if path.parent is None else path.shared,
                agent=path.agent,
            )
            for number, path in enumerate(state.forest.paths())
        ]
    chains = [one.chain for one in state.rewrites] + [state.chain]
    segments = [_segments(chain, mark) for chain in chains]
    first = Sequence(id=f"{name}.0", segments=segments[0])
    if state.fork is not None:
        parent = state.fork.parent
        if not identity.orphan:
            parent, _, _ = parent.rpartition("/")
        offset = _position(chains[0], state.fork.offset, mark)
        first = replace(first, parent=f"{parent}.0", fork_offset=offset)
    return [
        first,
        *(
            Sequence(
                id=f"{name}.{number}",
                segments=segments[number],
                parent=f"{name}.{number - 1}",
                fork_offset=_position(chains[number], rewrite.shared, mark),
            )
            for number, rewrite in enumerate(state.rewrites, 1)
        ),
    ]


def _segments(chain: Chain, placeholder: int | None) -> tuple[Segment, ...]:
    if placeholder is None or not chain.images:
        return chain.segments
    slots = iter(chain.images)
    return tuple(_expanded(one, slots, placeholder) for one in chain.segments)


def _position(chain: Chain, at: int, placeholder: int | None) -> int:
    """The position in the record of token `at` of a chain, where an image is one token."""
    if placeholder is None:
        return min(at, len(chain.token_ids))
    shared = chain.token_ids[:at]
    shown = chain.images[: shared.count(placeholder)]
    return len(shared) + sum((slot.tokens or UNSEEN) - 1 for slot in shown)


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
