"""Timers that are not set where nobody will need them."""

import asyncio

from toolsvc.plugin.alarm import Alarm


async def test_it_rings() -> None:
    rung = asyncio.Event()
    Alarm(0.01, rung.set)
    async with asyncio.timeout(10):
        await rung.wait()


async def test_one_that_was_cancelled_does_not_ring() -> None:
    rung: list[str] = []
    at_once, later = Alarm(0, lambda: rung.append("a")), Alarm(0, lambda: rung.append("b"))
    at_once.cancel()
    await asyncio.sleep(0)  # the other's timer is set by now
    later.cancel()
    last = asyncio.Event()
    Alarm(0.01, last.set)
    await last.wait()
    assert rung == []
