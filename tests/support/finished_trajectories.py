"""A finished trajectory for tests that are about one of its fields."""

from __future__ import annotations

from typing import Any

from toolwright.types import (
    Author,
    Segment,
    Sequence,
    Status,
    StopReason,
    Task,
    Trajectory,
    floats,
    ids,
)


def trajectory(index: int = 0, *segments: Segment, **fields: Any) -> Trajectory:
    """Member `index` of group g, which answered task q. segments: those of its only sequence; it
    has no sequence without any. fields: more fields of the trajectory, or others."""
    given: dict[str, Any] = {
        "id": f"g-{index}", "group_id": "g", "index": index, "task": Task(id="q"),
        "sequences": (Sequence(id=f"g-{index}.0", segments=segments),) if segments else (),
        "status": Status.COMPLETED, "stop_reason": StopReason.ANSWERED, **fields,
    }  # fmt: skip
    return Trajectory(**given)


def prompt(tokens: int = 1) -> Segment:
    return Segment(author=Author.PROMPT, token_ids=ids(range(tokens)))


def wrote(tokens: int = 1, **fields: Any) -> Segment:
    """What the model wrote: log-probs of 0."""
    return Segment(
        author=Author.MODEL, token_ids=ids(range(tokens)), logprobs=floats([0.0] * tokens), **fields
    )


def observed(tokens: int = 1, **fields: Any) -> Segment:
    return Segment(author=Author.TOOL, token_ids=ids(range(tokens)), **fields)
