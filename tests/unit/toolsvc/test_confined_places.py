"""Whose job is next."""

import asyncio
import contextlib

import pytest

from toolsvc.confined import places
from toolsvc.confined.errors import PoolFull
from toolsvc.confined.places import Place, Places


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_the_next_is_of_the_caller_with_the_fewest_places() -> None:
    all_places = Places(2)
    held = [await all_places.take("greedy", 1) for _ in range(2)]
    order: list[str] = []

    async def wait(caller: str) -> Place:
        place = await all_places.take(caller, 10)
        order.append(caller)
        return place

    waiting = [asyncio.create_task(wait(one)) for one in ("greedy", "greedy", "b", "c", "b")]
    await settle()
    all_places.leave(held.pop())
    await settle()
    assert order == ["b"]
    all_places.leave(waiting[2].result())
    await settle()
    assert order == ["b", "c"]
    all_places.leave(held.pop())
    await settle()
    assert order == ["b", "c", "greedy"]
    for caller in (3, 0, 1, 4):
        await settle()
        all_places.leave(await waiting[caller])
    await settle()
    assert all_places.busy == 0


async def test_long_jobs_make_room_as_often_as_there_are_slow_places(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(places, "QUICK_SECONDS", 0.0)
    all_places = Places(1)
    first = await all_places.take("a", 1)
    second = await all_places.take("b", 1)
    assert all_places.busy == 2
    with pytest.raises(PoolFull):
        await all_places.take("c", 0.05)
    all_places.leave(first)
    third = await all_places.take("c", 1)
    assert all_places.busy == 2
    all_places.leave(second)
    all_places.leave(third)
    assert all_places.busy == 0


@pytest.mark.parametrize("steps", [0, 1, 2])
async def test_who_is_cancelled_leaves_no_place_behind(steps: int) -> None:
    all_places = Places(1)
    held = await all_places.take("a", 1)
    task = asyncio.create_task(all_places.take("b", 10))
    await settle()
    all_places.leave(held)
    for _ in range(steps):
        await asyncio.sleep(0)
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        all_places.leave(await task)
    await settle()
    assert all_places.busy == 0
    all_places.leave(await all_places.take("c", 1))
