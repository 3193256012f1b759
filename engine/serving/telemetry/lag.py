"""Lag of the event loop: a task sleeps 25 ms and measures how much later it woke.

Everything that is ready waits as long as this task does. So its lag is the delay of a chunk, a
tool's result or an RPC. Invariant: a figure covers only the time since the last `reset`, which a
measurement calls after the ramp-up. The Prometheus histogram covers all.
"""

from __future__ import annotations

import asyncio
import time
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import accumulate

from prometheus_client import CollectorRegistry, Metric
from prometheus_client.core import HistogramMetricFamily
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

PERIOD_S = 0.025
BOUNDS = tuple(round(0.0005 * 1.25**power, 6) for power in range(44))
"""Upper ends of the buckets in seconds: 0.5 ms to 7 s, each a quarter wider than the last."""


class LoopLag(Collector):
    """The lag of the loop in which `run` runs. (It counts itself and reports to Prometheus on
    demand: a Histogram takes a lock for each observation.)"""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._all = [0] * (len(BOUNDS) + 1)
        self._seconds = 0.0
        self._before = list(self._all)
        """Counts at the last reset."""
        self.worst = 0.0
        """Seconds, since the last reset."""
        registry.register(self)

    async def run(self) -> None:
        """Measures until it is cancelled."""
        while True:
            began = time.monotonic()
            await asyncio.sleep(PERIOD_S)
            self.observe(max(0.0, time.monotonic() - began - PERIOD_S))

    def observe(self, seconds: float) -> None:
        self._all[bisect_left(BOUNDS, seconds)] += 1
        self._seconds += seconds
        self.worst = max(self.worst, seconds)

    def reset(self) -> None:
        """Forgets all measurements; the Prometheus histogram keeps them."""
        self._before = list(self._all)
        self.worst = 0.0

    def collect(self) -> Iterator[Metric]:
        """The histogram since the start, for Prometheus; called in its thread."""
        names = [*map(floatToGoString, BOUNDS), "+Inf"]
        yield HistogramMetricFamily(
            "toolwright_engine_loop_lag_seconds",
            "how much later than due a task of the event loop woke",
            buckets=list(zip(names, map(float, accumulate(self._all)), strict=True)),
            sum_value=self._seconds,
        )

    @property
    def _counts(self) -> list[int]:
        return [now - before for now, before in zip(self._all, self._before, strict=True)]

    @property
    def p50(self) -> float:
        """Seconds, since the last reset."""
        return quantile(self._counts, 0.5)

    @property
    def p99(self) -> float:
        """Seconds, since the last reset."""
        return quantile(self._counts, 0.99)


def quantile(counts: Sequence[int], share: float, bounds: Sequence[float] = BOUNDS) -> float:
    """The value below which `share` of the observations are, by linear interpolation inside its
    bucket. 0 without observations, the last bound for values beyond it.

    counts: [len(bounds) + 1], observations in each bucket.
    """
    wanted = share * sum(counts)
    below = 0
    for bucket, count in enumerate(counts[:-1]):
        if count and below + count >= wanted:
            low = bounds[bucket - 1] if bucket else 0.0
            return low + (bounds[bucket] - low) * (wanted - below) / count
        below += count
    return bounds[-1] if sum(counts) else 0.0
