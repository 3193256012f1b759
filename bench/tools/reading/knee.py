"""The knee of a concurrency sweep. Pure.

The knee is the first concurrency whose successor adds less than 5 % calls a second and more than
10 % average latency. Above the knee, calls only wait for each other.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

GROWS = 1.05
SUFFERS = 1.10


def knee(points: Iterable[tuple[int, float, float]]) -> int | None:
    """The concurrency at the knee; None if the sweep does not reach it. points: (concurrency, calls
    a second, average latency)."""
    for (here, rate, latency), (_, next_rate, next_latency) in pairwise(sorted(points)):
        if next_rate < rate * GROWS and next_latency > latency * SUFFERS:
            return here
    return None
