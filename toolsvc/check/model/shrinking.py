"""Shortens a history that fails: steps are left out for as long as it goes on failing."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

Step = TypeVar("Step")
Still = Callable[[Sequence[Step]], Awaitable[Sequence[Step] | None]]


async def shortened(
    steps: Sequence[Step],
    still: Still[Step],
    pieces: Callable[[Step], Sequence[Step]] = lambda _: (),
) -> Sequence[Step]:
    """A history of which no single step can be left out or be made smaller, or what was reached
    when `still` had enough. `still` says of a history whether it fails: what of it was needed up
    to there, or None. `pieces`: smaller steps in place of one."""
    steps = await _with_fewer(steps, still)
    at = 0
    while at < len(steps):
        for piece in pieces(steps[at]):
            left = await still([*steps[:at], piece, *steps[at + 1 :]])
            if left is not None:
                steps = left
                break
        else:
            at += 1
    return steps


async def _with_fewer(steps: Sequence[Step], still: Still[Step]) -> Sequence[Step]:
    """Large parts are left out first: most of a history has nothing to do with its end."""
    size = len(steps) // 2
    while size:
        at = 0
        while at < len(steps):
            left = await still([*steps[:at], *steps[at + size :]])
            if left is None:
                at += size
            else:
                steps = left
        size //= 2
    return steps
