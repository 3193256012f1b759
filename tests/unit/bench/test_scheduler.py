"""Pauses, aborts and updates, without HTTP."""

from __future__ import annotations

import asyncio
from itertools import repeat

import pytest

from bench.scripted import PauseMode, RequestError, Timing, Token
from bench.scripted.generation import Generation
from bench.scripted.scheduler import Scheduler
from bench.scripted.types import GenerateRequest
from tests.support.waiting import holds_for, passes, until

pytestmark = pytest.mark.alone

TIMING = Timing(tokens_per_second=200)


def start(scheduler: Scheduler, rid: str, max_new_tokens: int = 10_000) -> Generation:
    request = GenerateRequest(
        rid=rid,
        input_ids=(1,),
        stream=True,
        return_logprob=True,
        return_prompt_token_ids=False,
        max_new_tokens=max_new_tokens,
        stop_token_ids=frozenset(),
        ignore_eos=False,
        stream_interval=1,
        conversation=rid,
        params={},
    )
    scheduler.register(rid)
    generation = Generation(
        request=request,
        source=repeat(Token(5, -1.0)),
        delays=TIMING.delays(rid),
        eos=frozenset(),
        started=0.0,
        cached_tokens=0,
    )
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


async def test_an_id_is_in_flight_once() -> None:
    driver = scheduler()
    start(driver, "r")
    with pytest.raises(RequestError, match="Duplicate request ID detected: r"):
        driver.register("r")
    await driver.forget("r")
    driver.register("r")


@pytest.mark.parametrize("mode", [PauseMode.RETRACT, PauseMode.IN_PLACE])
async def test_a_pause_costs_no_tokens_and_is_not_caught_up(mode: PauseMode) -> None:
    driver = scheduler()
    reply = start(driver, "r")
    await until(lambda: len(reply.tokens) >= 1, "the first tokens")
    await driver.pause(mode)
    before = len(reply.tokens)
    await holds_for(0.2, lambda: len(reply.tokens) == before, "the pause to hold the reply")
    assert len(reply.tokens) == before
    assert (driver.running, driver.waiting) == ((0, 1) if mode is PauseMode.RETRACT else (1, 0))
    resumed = asyncio.get_running_loop().time()
    await driver.resume()
    await passes(0.05, "the reply grows again")
    most = (asyncio.get_running_loop().time() - resumed) * TIMING.tokens_per_second
    assert before < len(reply.tokens) <= before + most + 5


async def test_pausing_twice_retracts_once() -> None:
    driver = scheduler()
    reply = start(driver, "r")
    await driver.pause(PauseMode.RETRACT)
    await driver.pause(PauseMode.RETRACT)
    await driver.resume()
    await driver.resume()
    assert reply.retractions == 1


async def test_requests_are_held_during_a_pause() -> None:
    driver = scheduler()
    await driver.pause(PauseMode.ABORT)
    driver.register("r")
    admitted = asyncio.create_task(driver.admitted())
    await until(lambda: driver.held == 1, "the request")
    assert (admitted.done(), driver.held) == (False, 1)
    await driver.resume()
    await admitted


async def test_an_update_outside_a_pause_waits_and_holds_new_requests() -> None:
    driver = scheduler()
    start(driver, "r", max_new_tokens=20)
    update = asyncio.create_task(driver.load_weights("v1", flush=driver.can_flush))
    await holds_for(0.02, lambda: not update.done(), "the update to wait")
    admitted = asyncio.create_task(driver.admitted())
    await holds_for(0.02, lambda: not (update.done() or admitted.done()), "both to wait")
    assert not update.done()
    assert not admitted.done()
    await passes(0.15, "the reply ends")
    await driver.forget("r")
    assert await update is True
    await admitted
    assert driver.weight_version == "v1"


async def test_an_update_that_could_not_flush_is_sampled_from_but_not_reported() -> None:
    driver = scheduler()
    reply = start(driver, "r")
    await until(lambda: len(reply.tokens) >= 1, "the first tokens")
    await driver.pause(PauseMode.IN_PLACE)
    assert await driver.load_weights("v1", flush=driver.can_flush) is False
    await driver.resume()
    await until(lambda: len(reply.spans) == 2, "tokens of the new weights")
    assert driver.weight_version == "v0"
    assert [span.version for span in reply.spans] == ["v0", "v1"]


async def test_a_reply_that_is_forgotten_stops_growing() -> None:
    driver = scheduler()
    reply = start(driver, "r")
    await until(lambda: len(reply.tokens) >= 1, "the first tokens")
    await driver.forget("r")
    count = len(reply.tokens)
    await holds_for(
        0.05, lambda: len(reply.tokens) == count, "the forgotten reply to stay as it is"
    )
    assert len(reply.tokens) == count
    assert (driver.running, driver.waiting, driver.held) == (0, 0, 0)
