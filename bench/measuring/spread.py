"""Percentiles of what was measured. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from statistics import fmean, median
from typing import Self


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """Milliseconds."""

    min: float
    avg: float
    p50: float
    p90: float
    p99: float
    max: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Self:
        """The spread of milliseconds. Percentile n is the smallest value that at least n % of the
        values do not exceed. No values give zeros."""
        ordered = sorted(values) or [0.0]

        def at(percent: int) -> float:
            return ordered[max(0, -(-len(ordered) * percent // 100) - 1)]

        return cls(
            min=ordered[0], avg=fmean(ordered), p50=at(50), p90=at(90), p99=at(99), max=ordered[-1]
        )

    @classmethod
    def of_seconds(cls, values: Iterable[float]) -> Self:
        """The spread of seconds, in milliseconds."""
        return cls.of([1e3 * value for value in values])

    @classmethod
    def median_of(cls, several: Sequence[Self]) -> Self:
        """The median of each figure."""
        return cls(**{f.name: median(getattr(one, f.name) for one in several) for f in fields(cls)})
