"""Ending replies by their ids, or by leaving."""

from __future__ import annotations

import asyncio

from tests.contract.sampler.target import SETTLE_S, Target, finished


async def check_abort(t: Target) -> None:
    """An abort ends the stream soon, in good order, with all that was sampled."""
    body = t.body("abort")
    async with t.client.streaming(body, after=5) as (_, task):
        await t.abort(body["rid"])
        async with asyncio.timeout(2):
            stream = await task
    t.check_whole(stream)
    assert stream.finish is not None
    assert stream.finish["type"] == "abort"


async def check_abort_matches_prefixes_of_known_ids(t: Target) -> None:
    """An abort reaches every id that begins with its own, if its own is in flight."""
    short, long = t.body("prefix"), t.body("x")
    long["rid"] = short["rid"] + "-and-more"
    async with t.client.streaming(long) as (_, long_task):
        await t.abort(short["rid"])
        await asyncio.sleep(SETTLE_S)
        assert not long_task.done(), "an id that is not in flight aborts nothing"
        async with t.client.streaming(short) as (_, short_task):
            await t.abort(short["rid"])
            for task in (short_task, long_task):
                stream = await finished(task)
                assert stream.finish is not None
                assert stream.finish["type"] == "abort"


async def check_abort_all(t: Target) -> None:
    """abort_all ends everything."""
    async with (
        t.client.streaming(t.body("all")) as (_, one),
        t.client.streaming(t.body("all")) as (_, two),
    ):
        assert (await t.client.post("/abort_request", {"abort_all": True}))[0] == 200
        for task in (one, two):
            assert ((await finished(task)).finish or {})["type"] == "abort"


async def check_abort_of_nothing(t: Target) -> None:
    """Aborting what is not there is a success."""
    await t.abort("nobody")


async def check_leaving_ends_the_reply(t: Target) -> None:
    """A client that goes away leaves nothing running. Loads are snapshots and lag behind."""
    async with t.client.streaming(t.body("leave", 4000)):
        await t.until_running(1)
    await t.until_running(0)
