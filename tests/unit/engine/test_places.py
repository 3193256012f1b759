"""Places: how many are in flight at once, first come, first served."""

from __future__ import annotations

import asyncio

import pytest

from engine.serving.admission.places import Places


async def test_a_place_that_is_given_back_goes_to_the_one_who_has_waited_longest() -> None:
    places, order = Places(1), []

    async def take(name: str) -> None:
        async with places:
            order.append(name)
            await asyncio.sleep(0)

    async with asyncio.TaskGroup() as group:
        for name in "abcd":
            group.create_task(take(name))
    assert order == list("abcd")
    assert (places.used, places.free) == (0, 1)


async def test_never_more_than_the_limit() -> None:
    places, most = Places(3), 0

    async def take() -> None:
        nonlocal most
        async with places:
            most = max(most, places.used)
            await asyncio.sleep(0.001)

    async with asyncio.TaskGroup() as group:
        for _ in range(20):
            group.create_task(take())
    assert (most, places.used) == (3, 0)


async def test_who_stops_waiting_keeps_nobody_waiting() -> None:
    places = Places(1)
    async with places:
        waiting = asyncio.create_task(places.__aenter__())
        later = asyncio.create_task(places.__aenter__())
        await asyncio.sleep(0)
        assert places.free == -2
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
    await later
    assert (places.used, places.free) == (1, 0)


async def test_a_place_that_comes_with_the_cancellation_is_passed_on() -> None:
    places = Places(1)
    async with places:
        waiting = asyncio.create_task(places.__aenter__())
        await asyncio.sleep(0)
    waiting.cancel()  # the place is its own already, and it does not know yet
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert (places.used, places.free) == (0, 1)


async def test_a_larger_limit_lets_waiting_callers_in_and_a_smaller_one_takes_nothing() -> None:
    places, held, go_on = Places(2), [], asyncio.Event()

    async def take(name: str) -> None:
        async with places:
            held.append(name)
            await go_on.wait()

    async with asyncio.TaskGroup() as group:
        for name in "abcd":
            group.create_task(take(name))
        await asyncio.sleep(0)
        assert held == list("ab")
        places.resize(3)
        await asyncio.sleep(0)
        assert held == list("abc")
        places.resize(1)
        assert (places.used, places.free) == (3, -3)
        go_on.set()
    assert held == list("abcd")
    assert (places.used, places.free) == (0, 1)
