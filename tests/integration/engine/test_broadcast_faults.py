"""A publish over a group that breaks: no sampler stays paused, none serves mixed weights."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from urllib.parse import urlsplit

import pytest

from bench.scripted import Faults, ScriptedSampler, Timing
from bench.scripted.update_group import Rank0
from tests.integration.engine.conftest import MakeWorld, World
from tests.integration.engine.test_broadcast import (
    at,
    begun,
    folder,
    journaled,
    policy,
    refused,
    two,
)
from tests.support.broadcasts import SIZES, broadcast, metas, publish_whole
from tests.support.engines import Running
from tests.support.waiting import holds_for, until
from toolwright.common.v1 import reasons_pb2 as reasons
from toolwright.rpc.errors import ServiceError, TransportError
from toolwright.types import WeightVersion

pytestmark = pytest.mark.quick

FAILED = reasons.ERROR_REASON_PUBLISH_FAILED


async def under_way(run: Running) -> None:
    """The second bucket has reached the samplers."""
    await until(lambda: run.engine._broadcasts._open.state.bucket[0] == 1, "the bucket")  # type: ignore[union-attr, index]


async def serves(run: Running, sampler: ScriptedSampler, version: WeightVersion) -> None:
    """The sampler is up, as the version, and runs; its last load came from a folder."""
    server = run.engine._pool.named(sampler.url)
    await until(server.up.is_set, f"{sampler.url} to be up")
    assert sampler.scheduler.weight_version == str(version)
    assert not sampler.scheduler.paused
    assert not server.paused
    assert await sampler.groups.end() == (
        False,
        "no weight-update session is open; call begin_weight_update() first",
    )


def counted(here: World, name: str) -> list[object]:
    """Grows by one with every call of the scheduler's method."""
    method, calls = getattr(here.sampler.scheduler, name), list[object]()

    async def call(*args: object, **kwargs: object) -> object:
        calls.append(args)
        return await method(*args, **kwargs)

    setattr(here.sampler.scheduler, name, call)
    return calls


async def test_a_server_that_dies_between_buckets(world: MakeWorld) -> None:
    """The others get the folder of the version before, and the next publish is theirs."""
    async with two(world) as (here, run, other):
        async with broadcast(run, 2, "a", "b") as publish:
            await other.__aexit__()
            asked = asyncio.create_task(publish.ask(1, metas("c")))
            await publish.root.broadcast([SIZES["c"]])
            for late in (asked, publish.ask(1, metas("c")), publish.commit()):
                await refused(late, FAILED, "no connection")
        await serves(run, here.sampler, run.at(1))
        shown = run.engine._pool.statistics()[other.url]
        assert not shown["up"]
        assert "no connection" in shown["why"]
        assert await run.learner.version() == run.at(1)
        assert (await publish_whole(run, 2)).samplers == 1
        assert at(here) == str(run.at(2))


async def test_a_server_that_began_anew_does_not_pass_for_one_that_received(
    world: MakeWorld,
) -> None:
    """Also where it comes up again between its last bucket and the commit."""
    async with two(world) as (here, run, other), broadcast(run, 2, "a", "b", "c") as publish:
        await other.__aexit__()
        port = urlsplit(other.url).port or 0
        async with ScriptedSampler(script=here.sampler._script, port=port) as anew:
            assert (await publish.commit()).samplers == 1
            server = run.engine._pool.named(other.url)
            assert not server.up.is_set()
            await until(lambda: "waits for the folder" in server.why, "the reason")
            assert anew.scheduler.weight_version == "default"
            assert at(here) == str(run.at(2))
            await run.learner.publish(run.at(2), folder(here, 2))
            await serves(run, anew, run.at(2))


async def test_a_server_that_does_not_join_is_told_at_once(world: MakeWorld) -> None:
    """Nothing was paused, and the one that waits in the group is freed by the learner's end."""
    async with two(world, faults=Faults(fail_joins=1)) as (here, run, other):
        pauses = counted(here, "pause")
        async with broadcast(run, 2) as publish:
            await refused(publish.ask(0, metas("a")), FAILED, "this failure is scripted")
        assert not pauses
        await serves(run, here.sampler, run.at(1))
        await serves(run, other, run.at(1))
        assert (await publish_whole(run, 2)).samplers == 2


@pytest.mark.parametrize("amid", ["joining", "buckets", "a bucket"])
async def test_a_learner_that_falls_silent(world: MakeWorld, amid: str) -> None:
    async with begun(world) as (here, run):
        first = () if amid == "joining" else ("a",)
        async with broadcast(run, 2, *first, lease=1) as publish:
            if amid == "joining":
                await publish.root.joined()
            if amid == "a bucket":
                await refused(publish.ask(1, metas("b")), FAILED, "its lease of 1 s ended")
                # It hangs in the broadcast, and cannot be called back.
                server = run.engine._pool.named(here.sampler.url)
                await holds_for(0.2, lambda: not server.up.is_set(), "the server to be set aside")
            else:
                await until(lambda: run.engine._broadcasts._open is None, "the lease's end")
        await serves(run, here.sampler, run.at(1))
        await refused(publish.commit(), FAILED, "its lease of 1 s ended")
        assert (await run.learner.status()).state == "running"
        await publish_whole(run, 2)
        await serves(run, here.sampler, run.at(2))


async def test_an_abort_moves_nothing_or_brings_the_folder(world: MakeWorld) -> None:
    """Streams under way go on: by themselves, or from what they have."""
    async with begun(world, timing=Timing(tokens_per_second=8)) as (here, run):
        loads, pauses = counted(here, "load_weights"), counted(here, "pause")
        for names in ((), ("a", "b")):
            await until(lambda: here.sampler.scheduler.running > 0, "a stream")
            async with broadcast(run, 2) as publish:
                await publish.root.joined()
                if names:
                    await publish.bucket(0, *names)
                await publish.abort()
                await refused(publish.ask(1, metas("c")), FAILED, "its learner ended it")
            await serves(run, here.sampler, run.at(1))
            assert len(loads) == len(pauses) == bool(names)
        await run.learner.publish(run.at(2), folder(here, 2))
        (group,) = await run.learner.lease(run.at(2))
        assert set(group.members[0].weight_versions) <= {run.at(step) for step in range(3)}
        assert run.engine._pool.statistics()[here.sampler.url]["failures"] == {}


async def test_what_a_server_with_a_part_of_the_weights_writes_is_not_taken(
    world: MakeWorld,
) -> None:
    """It calls them by a name that is no version of the run."""
    async with begun(world, "engine.drain_s=0") as (here, run), broadcast(run, 2, "a") as publish:
        assert at(here) == f"{publish.id}, in part"
        assert at(here) not in run.engine._pool.known


async def test_an_engine_that_is_restarted_between_buckets(world: MakeWorld) -> None:
    async with AsyncExitStack() as stack, begun(world, "engine.drain_s=0") as (here, run):
        one, newer = run.at(1), run.at(2)
        publish = await stack.enter_async_context(broadcast(run, 2, "a", "b"))
        asked = asyncio.create_task(publish.ask(1, metas("c")))
        await under_way(run)
        await run.drain()
        with pytest.raises((ServiceError, TransportError)):
            await asked
    # Until then the server hangs in the broadcast.
    await until(lambda: not here.sampler.scheduler.paused, "the end of its pause")
    async with here.engine() as run:
        await serves(run, here.sampler, one)
        assert await run.learner.version() == newer  # it was given: the name is taken
        publish.learner = run.learner
        await refused(publish.ask(1, metas("c")), FAILED, "the engine was restarted")
        await publish_whole(run, 2)
        await serves(run, here.sampler, newer)


async def test_an_engine_that_was_killed_between_buckets(world: MakeWorld) -> None:
    """It could put nothing in order: the next life finds a pause, an update and a group."""
    async with begun(world) as (here, run):
        pass
    async with Rank0() as root:
        await here.sampler.groups.init(
            rank=1, world_size=2, name="old", address="127.0.0.1", port=root.port
        )
        await here.sampler.scheduler.pause("retract")  # type: ignore[arg-type]
        await here.sampler.groups.begin()
        here.sampler.scheduler.rename_weights("old, in part")
        async with here.engine() as run:
            await serves(run, here.sampler, run.at(1))
            await publish_whole(run, 2)
            await serves(run, here.sampler, run.at(2))


async def test_a_learner_that_takes_the_run_ends_the_publish_before(world: MakeWorld) -> None:
    superseded, over = reasons.ERROR_REASON_SUPERSEDED, "taken the run over"
    async with begun(world) as (here, run):
        await policy(run, "older")
        async with broadcast(run, 2, "a", learner="older") as publish:
            asked = asyncio.create_task(publish.ask(1, metas("b")))
            await under_way(run)
            taking = asyncio.create_task(policy(run, "newer"))
            await refused(asked, superseded, f"another learner has {over}")
        # The older one has ended.
        assert (await taking).version.step == 1
        await serves(run, here.sampler, run.at(1))
        await refused(publish.commit(), superseded, over)
        await refused(publish.begin(run.at(2), port=1), superseded, over)
        await publish_whole(run, 2, learner="newer")
        assert at(here) == str(run.at(2))


async def test_a_caller_that_goes_away_leaves_the_publish_to_itself(world: MakeWorld) -> None:
    """The same request asked again joins what goes on."""
    async with begun(world) as (here, run), broadcast(run, 2) as publish:
        first = publish.id
        await publish.begin(run.at(2))
        assert publish.id == first
        dying = asyncio.create_task(publish.ask(0, metas("ab")))
        await until(lambda: here.sampler.scheduler.paused, "the pause")
        dying.cancel()
        await asyncio.gather(dying, return_exceptions=True)
        again = asyncio.create_task(publish.ask(0, metas("ab")))
        await publish.root.broadcast([SIZES["a"], SIZES["b"]])
        await again
        await publish.ask(0, metas("ab"))
        assert here.sampler.groups.received == ["a", "b"]
        await publish.bucket(1, "c")
        assert (await publish.commit()).samplers == 1


async def test_another_publish_of_the_learner_ends_the_open_one(world: MakeWorld) -> None:
    """Begun anew, or by a folder: the lease is not waited for."""
    async with begun(world) as (here, run):
        async with broadcast(run, 2, "a") as publish:
            await publish_whole(run, 2)
            await refused(publish.ask(1, metas("b")), FAILED, "no publish .* is open here")
        async with broadcast(run, 3, "a") as publish:
            assert (await run.learner.publish(run.at(3), folder(here, 3))).samplers == 1
            await refused(publish.ask(1, metas("b")), FAILED, f"{run.at(3)} comes by a folder")
        await serves(run, here.sampler, run.at(3))
        assert await journaled(run) == run.at(3)


async def test_a_group_that_cannot_be_made_is_refused(world: MakeWorld) -> None:
    """A store that does not answer hangs no server; SGLang's replicas cannot be updated so."""
    async with begun(world) as (here, run), broadcast(run) as publish:
        no_store = r"does not answer at 127\.0\.0\.1:1"
        await refused(publish.begin(run.at(2), port=1), FAILED, no_store)
        assert not here.sampler.groups._calls
        await publish_whole(run, 2)
        await run.learner.publish(run.at(2), folder(here, 2))
    here.sampler._control._info = {**here.sampler._control._info, "dp_size": 2}
    async with here.engine() as run, broadcast(run) as publish:
        await refused(publish.begin(run.at(3)), FAILED, "replicas or pipeline stages")
        await serves(run, here.sampler, run.at(2))


async def test_with_no_sampler_up_a_publish_waits_or_asks_for_the_folder(world: MakeWorld) -> None:
    async with begun(world, "engine.drain_s=0") as (here, run):
        port, script = urlsplit(here.sampler.url).port or 0, here.sampler._script
        pool = run.engine._pool
        await here.sampler.__aexit__()
        pool.mark_down(pool.named(here.sampler.url), "the test says so")
        async with broadcast(run) as publish:
            await refused(publish.begin(run.at(2), lease=1), FAILED, "its lease of 1 s ended")
            waiting = asyncio.create_task(publish.begin(run.at(2)))
            await until(lambda: run.engine._broadcasts._open is not None, "the publish")
            async with ScriptedSampler(script=script, port=port) as back:
                await waiting
                await publish.bucket(0, "a", "b", "c")
                await publish.commit()
                assert back.scheduler.weight_version == str(run.at(2))
                pool.mark_down(pool.named(back.url), "the test says so")
                async with broadcast(run) as later:
                    why = "no sampler is up: publish a"
                    await refused(later.begin(run.at(3)), FAILED, why)
                await run.learner.publish(run.at(3), folder(here, 3))
                assert back.scheduler.weight_version == str(run.at(3))
