"""The power law of rank and frequency: f = C rank^-exponent. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerLaw:
    """A fitted law."""

    exponent: float
    """Above 0 for falling frequencies."""
    log_c: float
    """ln of the fitted frequency at rank 1."""
    r2: float | None
    """Explained share of the variance of ln f; None if all frequencies are equal."""

    def at(self, rank: float) -> float:
        """The fitted frequency."""
        return math.exp(self.log_c - self.exponent * math.log(rank))


def power_law(frequencies: Iterable[int]) -> PowerLaw | None:
    """Fits ln f on ln rank by least squares, rank 1 = the largest; None for fewer than two.

    MTR, appendix E, reports exponent and R2 without a method. frequencies: each at least 1. All
    tools weigh the same, so the long tail of tools that were called once decides the slope.
    """
    ordered = sorted(frequencies, reverse=True)
    if len(ordered) < 2:
        return None
    count = len(ordered)
    xs = [math.log(rank) for rank in range(1, count + 1)]
    ys = [math.log(frequency) for frequency in ordered]
    x_mean, y_mean = math.fsum(xs) / count, math.fsum(ys) / count
    xx = math.fsum((x - x_mean) ** 2 for x in xs)
    xy = math.fsum((x - x_mean) * (y - y_mean) for x, y in zip(xs, ys, strict=True))
    yy = math.fsum((y - y_mean) ** 2 for y in ys)
    slope = xy / xx
    return PowerLaw(
        exponent=-slope,
        log_c=y_mean - slope * x_mean,
        r2=xy * xy / (xx * yy) if ordered[0] != ordered[-1] else None,
    )
