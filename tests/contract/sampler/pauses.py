"""What a pause does to replies, in each of its modes."""

from __future__ import annotations

import asyncio

from tests.contract import schema
from tests.contract.client import Stream
from tests.contract.sampler.target import SETTLE_S, Target, finished


async def check_retract_keeps_the_stream(t: Target) -> None:
    """A retracting pause stops the tokens, frees the cache, and the stream goes on after it."""
    async with t.client.streaming(t.body("retract", 60), after=5) as (stream, task):
        async with t.paused("retract"):
            await asyncio.sleep(SETTLE_S)
            seen = len(stream.events)
            assert (await t.client.post("/flush_cache"))[0] == 200
            await asyncio.sleep(SETTLE_S)
            assert len(stream.events) == seen
        t.check_whole(await finished(task))
    assert stream.finish == {"type": "length", "length": 60}
    assert stream.last["meta_info"]["num_retractions"] == 1


async def check_ready_tells_of_a_pause(t: Target) -> None:
    """/ready answers at once, and says no while a pause is on; /model_info answers as ever."""
    assert (await t.client.get("/ready"))[0] == 200
    async with t.paused("retract"):
        assert (await t.client.get("/ready"))[0] == 503
        assert await t.version()
    assert (await t.client.get("/ready"))[0] == 200


async def check_in_place_keeps_the_cache(t: Target) -> None:
    """A pause in place freezes the stream; its cache cannot be flushed."""
    async with t.client.streaming(t.body("place", 60), after=5) as (stream, task):
        async with t.paused("in_place"):
            await asyncio.sleep(SETTLE_S)
            seen = len(stream.events)
            assert (await t.client.post("/flush_cache"))[0] == 400
            await asyncio.sleep(SETTLE_S)
            assert len(stream.events) == seen
        t.check_whole(await finished(task))
    assert stream.finish == {"type": "length", "length": 60}
    assert stream.last["meta_info"]["num_retractions"] == 0


async def check_pause_by_abort(t: Target) -> None:
    """The default pause ends what runs and holds what comes."""
    async with t.client.streaming(t.body("pause"), after=5) as (_, task):
        status, _ = await t.client.post("/pause_generation", {})
        assert status == 200
        async with t.paused("abort"):
            stream = await finished(task)
            t.check_whole(stream)
            assert (stream.finish or {})["type"] == "abort"
            async with t.client.streaming(t.body("wait", 5), after=0) as (_, waiting):
                await asyncio.sleep(SETTLE_S)
                assert not waiting.done()
                await t.client.post("/continue_generation")
                t.check_whole(await finished(waiting))


async def check_abort_in_the_queue_repeats_the_last_token(t: Target) -> None:
    """A retracted reply aborted while paused ends with an event of another make.

    It has no prompt_tokens, all log-probs, and in the incremental shape the last id again.
    """
    body = t.body("queue")
    async with t.client.streaming(body, after=5) as (stream, task), t.paused("retract"):
        await asyncio.sleep(SETTLE_S)
        await t.abort(body["rid"])
        await finished(task)
        held = Stream(status=200, events=stream.events[:-1]).ids(incremental=t.incremental)
        schema.check_answer(stream.last)
        meta = stream.last["meta_info"]
        assert meta["finish_reason"]["type"] == "abort"
        assert meta["completion_tokens"] == len(meta["output_token_logprobs"]) == len(held)
        assert stream.last["output_ids"] == (held[-1:] if t.incremental else held)
        assert "prompt_tokens" not in meta


async def check_abort_in_place_waits_for_the_end_of_the_pause(t: Target) -> None:
    """A reply frozen in place is aborted when the pause ends."""
    body = t.body("frozen")
    async with t.client.streaming(body, after=5) as (_, task):
        async with t.paused("in_place"):
            await t.abort(body["rid"])
            await asyncio.sleep(SETTLE_S)
            assert not task.done()
        stream = await finished(task)
    t.check_whole(stream)
    assert (stream.finish or {})["type"] == "abort"


async def check_abort_of_a_held_request_is_lost(t: Target) -> None:
    """A request that waits for the end of a pause cannot be aborted: it runs afterwards."""
    body = t.body("held", 5)
    async with t.paused("retract"):
        waiting = asyncio.create_task(t.client.stream(body))
        await asyncio.sleep(SETTLE_S)
        await t.abort(body["rid"])
        await asyncio.sleep(SETTLE_S)
        assert not waiting.done()
    stream = await finished(waiting)
    assert stream.finish == {"type": "length", "length": 5}
