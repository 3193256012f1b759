"""A trajectory's clock while its action waits: stopped once, and no second given back twice."""

from __future__ import annotations

import asyncio

from engine.core.sampler.waiting import WaitCause, Waiting
from engine.core.time_limit import TimeLimit
from tests.support.waiting import ToldClock, passes


async def test_causes_that_overlap_stop_the_clock_once() -> None:
    clock = ToldClock()
    waiting = Waiting(clock)
    waiting.begin(WaitCause.QUIET, 5.0)
    waiting.begin(WaitCause.NO_SAMPLER, 7.0)
    waiting.begin(WaitCause.NO_SAMPLER, 8.0)
    waiting.end(WaitCause.QUIET)
    waiting.end(WaitCause.QUIET)
    assert waiting
    assert clock.told == [5.0]
    waiting.end()
    waiting.end()
    assert not waiting
    assert clock.told == [5.0, None]


async def test_time_that_was_given_back_is_not_given_back_again() -> None:
    async with TimeLimit(0.1) as limit:
        waiting = Waiting(limit)
        await passes(0.02, "the limit runs")
        now = asyncio.get_running_loop().time()
        waiting.begin(WaitCause.PAUSED, now - 1)
        waiting.end(WaitCause.PAUSED)
        waiting.begin(WaitCause.BROKEN, now - 9)
        waiting.end()
        ends = limit._timeout.when()
    assert ends is not None
    assert ends < now + 1


async def test_a_limit_stands_still_while_an_action_waits() -> None:
    limit = TimeLimit(0.1)
    async with limit:
        waiting = Waiting(limit)
        waiting.begin(WaitCause.NO_SAMPLER, asyncio.get_running_loop().time())
        await passes(0.2, "the action waits")
        waiting.end(WaitCause.NO_SAMPLER)


async def test_without_a_clock_nothing_happens() -> None:
    waiting = Waiting(None)
    waiting.begin(WaitCause.BROKEN, 0.0)
    waiting.end()
