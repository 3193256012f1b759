"""Times of calls: all at once, one after the other, or at random instants.

Each loop takes a call (session number, intended start -> result) and knows nothing of services.
Latency counts from the intended start: in a burst from the burst's instant, in an open loop from
the arrival, even if the client is late.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterator
from time import perf_counter
from typing import TypeVar

Result = TypeVar("Result")
Call = Callable[[int, float], Awaitable[Result]]


async def burst(call: Call[Result], sessions: int) -> list[Result]:
    """Every session calls once, all at the same instant."""
    instant = perf_counter()
    return await asyncio.gather(*(call(index, instant) for index in range(sessions)))


async def closed(call: Call[Result], sessions: int, seconds: float) -> list[Result]:
    """Every session calls again as soon as it has its answer, for `seconds`. Returns after the last
    answer."""
    results: list[Result] = []
    end = perf_counter() + seconds

    async def worker(index: int) -> None:
        while (now := perf_counter()) < end:
            results.append(await call(index, now))

    async with asyncio.TaskGroup() as group:
        for index in range(sessions):
            group.create_task(worker(index))
    return results


async def opened(call: Call[Result], sessions: int, arrivals: list[float]) -> list[Result]:
    """Makes a call at each arrival (seconds from the start, ascending) in a free session. A call
    that must wait for a session has this wait in its latency."""
    results: list[Result] = []
    free: asyncio.Queue[int] = asyncio.Queue()
    for index in range(sessions):
        free.put_nowait(index)
    start = perf_counter()

    async def one(intended: float) -> None:
        index = await free.get()
        results.append(await call(index, intended))
        free.put_nowait(index)

    async with asyncio.TaskGroup() as group:
        for arrival in arrivals:
            early = start + arrival - perf_counter()
            if early > 0:
                await asyncio.sleep(early)
            # A timer of milliseconds may fire early: that is no negative latency.
            group.create_task(one(min(start + arrival, perf_counter())))
    return results


def poisson(rate: float, seconds: float, seed: int) -> list[float]:
    """Arrivals of a Poisson process: `rate` a second on average, within `seconds`."""

    def times() -> Iterator[float]:
        dice, time = random.Random(seed), 0.0
        while (time := time + dice.expovariate(rate)) < seconds:
            yield time

    return list(times())
