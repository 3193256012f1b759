"""One call of a session at a time passes to its tool, in order."""

import asyncio

import pytest

from toolsvc.host.turnstile import Turnstile


async def test_calls_pass_in_the_order_of_asking() -> None:
    turnstile, order = Turnstile(parallel=False), []

    async def wait(number: int) -> None:
        await turnstile.enter()
        order.append(number)
        turnstile.leave()

    assert turnstile.try_enter()
    waiting = [asyncio.create_task(wait(number)) for number in range(5)]
    await asyncio.sleep(0)
    turnstile.leave()
    await asyncio.gather(*waiting)
    assert order == [0, 1, 2, 3, 4]


async def test_a_cancelled_wait_loses_no_turn() -> None:
    turnstile = Turnstile(parallel=False)
    assert turnstile.try_enter()
    waiting = asyncio.create_task(turnstile.enter())
    await asyncio.sleep(0)
    turnstile.leave()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert turnstile.try_enter()
