"""Questions without end, out of a list of them."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import TypeVar

Item = TypeVar("Item")


def rounds(every: Iterable[Item], draw: random.Random) -> Iterator[Item]:
    """Endless: round after round, each in an order of its own. Nothing where there is nothing."""
    items = list(every)
    while items:
        draw.shuffle(items)
        yield from items


def in_turn(*streams: Iterator[Item]) -> Iterator[Item]:
    """One of each, then the next of each, until one of them ends."""
    return chain.from_iterable(zip(*streams, strict=False))
