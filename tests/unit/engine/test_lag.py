"""The loop's lag: a blocked loop is seen, and what came before the ramp-up's end is not."""

from __future__ import annotations

import asyncio

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from engine.serving.telemetry.lag import BOUNDS, LoopLag, quantile
from tests.support.waiting import blocks, passes

pytestmark = pytest.mark.alone


async def test_a_blocked_loop_is_seen() -> None:
    registry = CollectorRegistry()
    lag = LoopLag(registry)
    task = asyncio.create_task(lag.run())
    await passes(0.02, "the loop is measured")
    blocks(0.1, "the loop stands still: the fault to be found")
    await passes(0.02, "the fault is seen")
    task.cancel()
    assert 0.08 <= lag.worst < 1.0
    assert "toolwright_engine_loop_lag_seconds_bucket" in generate_latest(registry).decode()


def test_a_reset_forgets_the_ramp_up_but_not_the_histogram() -> None:
    registry = CollectorRegistry()
    lag = LoopLag(registry)
    lag.observe(2.0)
    lag.reset()
    for _ in range(99):
        lag.observe(0.002)
    lag.observe(0.3)
    assert lag.worst == 0.3
    assert lag.p50 == pytest.approx(0.002, rel=0.25)
    assert lag.p99 == pytest.approx(0.002, rel=0.25)
    assert b"toolwright_engine_loop_lag_seconds_count 101.0" in generate_latest(registry)


def test_quantiles_lie_inside_their_bucket() -> None:
    counts = [0] * (len(BOUNDS) + 1)
    assert quantile(counts, 0.99) == 0.0
    counts[3] = 100
    assert BOUNDS[2] < quantile(counts, 0.01) < quantile(counts, 0.99) < BOUNDS[3]
    counts[10] = 100
    assert BOUNDS[9] < quantile(counts, 0.75) < BOUNDS[10]


def test_what_lies_beyond_the_last_bucket_is_the_last_bound() -> None:
    lag = LoopLag(CollectorRegistry())
    lag.observe(1e6)
    assert lag.p50 == lag.p99 == BOUNDS[-1]
    assert lag.worst == 1e6
