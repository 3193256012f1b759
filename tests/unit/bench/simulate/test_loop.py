"""The virtual loop: time without waiting, an order that repeats, owners that die."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine
from random import Random
from typing import Any

import pytest

from bench.simulate.virtual.loop import BEGIN, Gone, Owner, Stuck, VirtualLoop
from bench.simulate.virtual.world import world

pytestmark = pytest.mark.quick


def play(work: Coroutine[Any, Any, Any], loop: VirtualLoop | None = None) -> Any:
    loop = loop or VirtualLoop(Random(0))
    with world(loop, 0):
        try:
            return loop.run_until_complete(work)
        finally:
            loop.close()


def test_an_hour_passes_at_once_and_every_clock_shows_it() -> None:
    async def an_hour() -> tuple[float, float, float]:
        await asyncio.sleep(3600.0)
        return asyncio.get_running_loop().time(), time.monotonic(), time.monotonic_ns() / 1e9

    began = time.monotonic()
    seen = play(an_hour())
    assert time.monotonic() - began < 5.0, "the process has its own clock back"
    assert seen == pytest.approx([BEGIN + 3600.0] * 3, abs=0.01)


def test_sets_of_tasks_iterate_in_the_order_of_their_making() -> None:
    async def ordered() -> bool:
        tasks = [asyncio.ensure_future(asyncio.sleep(1.0)) for _ in range(100)]
        await asyncio.gather(*tasks)
        return [hash(task) for task in tasks] == sorted(hash(task) for task in tasks)

    assert play(ordered())


def test_a_loop_in_which_nothing_can_happen_is_named() -> None:
    async def wait_for_ever() -> None:
        await asyncio.get_running_loop().create_future()

    with pytest.raises(Stuck, match="no timer"):
        play(wait_for_ever())


def test_a_dead_owner_does_nothing_more() -> None:
    loop = VirtualLoop(Random(0))
    done: list[str] = []

    async def life() -> None:
        running = asyncio.get_running_loop()
        running.call_later(2.0, done.append, "a timer")
        try:
            await asyncio.sleep(2.0)
            done.append("a task")
        finally:
            await asyncio.to_thread(done.append, "a thread")

    async def kill() -> list[str]:
        owner = Owner(loop, "victim")
        asking = asyncio.ensure_future(owner.ask(life()))
        await asyncio.sleep(1.0)
        owner.die()
        left = await owner.buried()
        with pytest.raises(Gone):
            await asking
        await asyncio.sleep(5.0)
        return left

    assert play(kill(), loop) == []
    assert done == []


def test_a_task_that_no_cancel_ends_is_named() -> None:
    loop = VirtualLoop(Random(0))

    async def stubborn() -> None:
        while True:
            try:
                await asyncio.get_running_loop().create_future()
            except asyncio.CancelledError:
                if not asyncio.get_running_loop().__dict__.get("may_end"):
                    continue
                raise

    async def kill() -> list[str]:
        owner = Owner(loop, "victim")
        owner.spawn(stubborn())
        await asyncio.sleep(1.0)
        owner.die()
        left = await owner.buried()
        loop.__dict__["may_end"] = True
        await owner.buried()
        return left

    (name,) = play(kill(), loop)
    assert "stubborn" in name
