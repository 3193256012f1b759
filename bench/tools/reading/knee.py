"""The knee of a concurrency sweep: where more calls at once stop bringing more calls a second.

Definition: the knee is the first concurrency from which the next one measured raises the calls a
second by less than 5 % while it raises the average latency by more than 10 %. Beyond it, calls
only wait for each other. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

GROWS = 1.05
SUFFERS = 1.10


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One row of a closed loop."""

    concurrency: int
    requests_per_s: float
    latency_ms: float


def knee(points: Sequence[Point]) -> int | None:
    """The concurrency at the knee; None where the sweep does not reach it."""
    ordered = sorted(points, key=lambda point: point.concurrency)
    for here, beyond in pairwise(ordered):
        flat = beyond.requests_per_s < here.requests_per_s * GROWS
        if flat and beyond.latency_ms > here.latency_ms * SUFFERS:
            return here.concurrency
    return None
