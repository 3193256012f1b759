"""The loops make the calls that they promise, when they promise them."""

from __future__ import annotations

import asyncio
from collections import Counter
from itertools import pairwise

from bench.tools.load import loops


async def test_a_burst_is_one_call_a_session_from_one_instant() -> None:
    together = asyncio.Barrier(50)

    async def call(index: int, intended: float) -> tuple[int, float]:
        await together.wait()  # Passes only if all are under way at once.
        return index, intended

    shots = await loops.burst(call, 50)
    assert [index for index, _ in shots] == list(range(50))
    assert len({intended for _, intended in shots}) == 1


async def test_a_closed_loop_keeps_every_session_busy_with_one_call() -> None:
    busy: set[int] = set()
    most = 0

    async def call(index: int, _intended: float) -> int:
        nonlocal most
        assert index not in busy
        busy.add(index)
        most = max(most, len(busy))
        await asyncio.sleep(0)
        busy.remove(index)
        return index

    made = Counter(await loops.closed(call, 4, 0.02))
    assert set(made) == set(range(4))
    assert most == 4
    assert min(made.values()) > 1


async def test_an_open_loop_counts_from_the_arrival_and_waits_for_a_free_session() -> None:
    release = asyncio.Event()
    arrived = asyncio.Semaphore(0)
    busy: set[int] = set()

    async def call(index: int, intended: float) -> float:
        assert index not in busy
        busy.add(index)
        arrived.release()
        await release.wait()
        busy.remove(index)
        return intended

    arrivals = [0.0, 0.001, 0.002, 0.003, 0.004]
    running = asyncio.create_task(loops.opened(call, 2, arrivals))
    await arrived.acquire()
    await arrived.acquire()
    assert len(busy) == 2
    release.set()
    intended = sorted(await running)
    for (one, other), (due, next_due) in zip(pairwise(intended), pairwise(arrivals), strict=True):
        assert abs((other - one) - (next_due - due)) < 1e-9


def test_poisson_arrivals_have_the_rate_and_are_the_same_for_a_seed() -> None:
    arrivals = loops.poisson(200.0, 50.0, seed=1)
    assert arrivals == loops.poisson(200.0, 50.0, seed=1) != loops.poisson(200.0, 50.0, seed=2)
    assert arrivals == sorted(arrivals)
    assert arrivals[0] > 0 and arrivals[-1] < 50.0
    gaps = [later - earlier for earlier, later in pairwise(arrivals)]
    mean = sum(gaps) / len(gaps)
    deviation = (sum((gap - mean) ** 2 for gap in gaps) / len(gaps)) ** 0.5
    # 10,000 gaps: 1 % is the standard error of the mean; an exponential deviates by its mean.
    assert abs(mean - 1 / 200) < 0.05 / 200
    assert abs(deviation - mean) < 0.1 * mean
