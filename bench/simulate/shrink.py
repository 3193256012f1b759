"""Makes a failing list short: delta debugging (Zeller and Hildebrandt, TSE 2002, ddmin). Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

Item = TypeVar("Item")

MOST_TRIES = 200
"""Plays of a shortened list, some .1 s each."""


def shrunk(
    items: tuple[Item, ...],
    fails: Callable[[tuple[Item, ...]], bool],
    most: int = MOST_TRIES,
) -> tuple[Item, ...]:
    """A part of `items`, in order, that still fails; if `most` tries suffice, one without which no
    single item can be left out. `items` itself is known to fail."""
    tries = 0

    def fail(some: tuple[Item, ...]) -> bool:
        nonlocal tries
        tries += 1
        return tries <= most and fails(some)

    if fail(()):
        return ()
    pieces = 2
    while len(items) > 1 and tries < most:
        size = -(-len(items) // pieces)
        for start in range(0, len(items), size):
            rest = items[:start] + items[start + size :]
            if rest and fail(rest):
                items, pieces = rest, max(pieces - 1, 2)
                break
        else:
            if size == 1:
                break
            pieces = min(2 * pieces, len(items))
    return items
