"""Pauses, aborts and updates, without HTTP."""

from __future__ import annotations

import asyncio

import pytest

from bench.scripted import Gpu, PauseMode, Timing
from bench.scripted.scheduling.generation import Generation
from bench.scripted.scheduling.scheduler import Scheduler
from tests.support.scripted_replies import reply
from tests.support.waiting import passes

pytestmark = pytest.mark.alone

TIMING = Timing(tokens_per_second=200)


def start(scheduler: Scheduler, rid: str, max_new_tokens: int = 10_000) -> Generation:
    generation = reply(rid, delays=TIMING.delays(rid), max_new_tokens=max_new_tokens)
    scheduler.register(rid)
    scheduler.start(generation)
    return generation


def scheduler() -> Scheduler:
    return Scheduler(timing=TIMING, weight_version="v0")


async def test_one_timer_serves_many_replies_at_their_rate() -> None:
    driver = scheduler()
    replies = [start(driver, f"r{number}") for number in range(50)]
    began = asyncio.get_running_loop().time()
    await passes(0.25, "replies grow")
    most = (asyncio.get_running_loop().time() - began) * TIMING.tokens_per_second
    lengths = [len(reply.tokens) for reply in replies]
    assert min(lengths) > 0
    assert max(lengths) <= most + 5


async def test_pausing_twice_retracts_once() -> None:
    driver = scheduler()
    reply = start(driver, "r")
    await driver.pause(PauseMode.RETRACT)
    await driver.pause(PauseMode.RETRACT)
    await driver.resume()
    await driver.resume()
    assert reply.retractions == 1


@pytest.mark.parametrize("mode", [PauseMode.RETRACT, PauseMode.ABORT])
async def test_a_pause_empties_the_cache_of_a_modelled_gpu(mode: PauseMode) -> None:
    gpu = Gpu(cache_tokens=100, prefill_rate=1.0)
    driver = Scheduler(timing=TIMING, weight_version="v0", gpu=gpu)
    replies = [start(driver, rid) for rid in ("runs", "waits for its prefill")]
    assert (driver.running, driver.waiting) == (1, 1)
    await driver.pause(mode)
    assert driver.running == 0
    assert driver.waiting == (2 if mode is PauseMode.RETRACT else 0)
    assert driver.can_flush()
    await driver.resume()
    assert driver.running + driver.waiting == sum(reply.finish is None for reply in replies)
