"""The lag of an engine's event loop, from its metrics."""

from __future__ import annotations

import re
from collections.abc import Sequence

import aiohttp

from engine.serving.telemetry.lag import BOUNDS, quantile

_BUCKET = re.compile(
    r'^toolwright_engine_loop_lag_seconds_bucket\{le="([^"]+)"\} (\S+)$', re.MULTILINE
)


class LagReader:
    """Reads cumulative counts by bucket of `engine.serving.telemetry.lag.BOUNDS`."""

    def __init__(self, metrics_port: int) -> None:
        self._url = f"http://127.0.0.1:{metrics_port}/metrics"
        self.ramped: Sequence[int] = ()
        """Counts at the end of the ramp-up."""
        self.half_done: Sequence[int] = ()
        """Counts when half of the trajectories were at the consumer."""

    async def read(self) -> list[int]:
        """The counts now; empty if the engine does not measure its lag."""
        async with aiohttp.ClientSession() as session, session.get(self._url) as answer:
            found = _BUCKET.findall(await answer.text())
        assert len(found) in (0, len(BOUNDS) + 1), "the buckets are those of this version"
        return [int(float(count)) for _, count in found]


def lag_ms(before: Sequence[int], after: Sequence[int]) -> dict[str, float]:
    """p50, p99 and worst lag between two readings, in ms."""
    cumulative = [now - then for now, then in zip(after, before, strict=False)]
    counts = [now - below for now, below in zip(cumulative, [0, *cumulative], strict=False)]
    shares = (("p50", 0.5), ("p99", 0.99), ("worst", 1.0))
    return {name: 1e3 * quantile(counts, share) for name, share in shares}
