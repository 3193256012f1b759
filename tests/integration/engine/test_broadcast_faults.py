"""A publish over a group that breaks: no sampler stays paused, none serves mixed weights."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

import pytest

from bench.scripted import Faults, ScriptedSampler, Timing
from bench.scripted.update_group import Rank0
from tests.integration.engine.conftest import MakeWorld, World
from tests.integration.engine.test_broadcast import (
    RUN,
    first,
    folder,
    journaled,
    policy,
    refused,
    v,
)
from tests.support.broadcasts import SIZES, Broadcast, metas
from tests.support.engines import Running
from tests.support.waiting import holds_for, until
from toolwright.common.v1 import reasons_pb2 as reasons
from toolwright.rpc.errors import ServiceError, TransportError
from toolwright.types import WeightVersion

pytestmark = pytest.mark.quick

FAILED = reasons.ERROR_REASON_PUBLISH_FAILED


@asynccontextmanager
async def two(
    world: MakeWorld, faults: Faults | None = None
) -> AsyncIterator[tuple[World, ScriptedSampler]]:
    """A world with a second sampler."""
    here = await world(run=RUN)
    async with ScriptedSampler(script=here.sampler._script, faults=faults) as other:
        here.tables["sampler"]["endpoints"].append(other.url)
        yield here, other


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
    async with two(world) as (here, other), here.engine() as run:
        one = await first(here, run)
        async with Rank0() as rank0:
            publish = Broadcast(learner=run.learner, rank0=rank0)
            await publish.begin(v(one, 2))
            await publish.bucket(0, "a", "b")
            await other.__aexit__()
            asked = asyncio.create_task(publish.ask(1, metas("c")))
            await rank0.broadcast([SIZES["c"]])
            await refused(asked, FAILED, "no connection")
            await refused(publish.ask(1, metas("c")), FAILED, "no connection")
            await refused(publish.commit(), FAILED, "no connection")
        await serves(run, here.sampler, one)
        told = run.engine._pool.statistics()[other.url]
        assert not told["up"]
        assert "no connection" in told["why"]
        assert await run.learner.version() == one
        async with Rank0() as rank0:
            again = Broadcast(learner=run.learner, rank0=rank0)
            assert (await again.whole(v(one, 2))).samplers == 1
            assert again.world_size == 2
        assert here.sampler.scheduler.weight_version == str(v(one, 2))


async def test_a_server_that_began_anew_does_not_pass_for_one_that_received(
    world: MakeWorld,
) -> None:
    """Also where it comes up again between its last bucket and the commit."""
    async with two(world) as (here, other), here.engine() as run, Rank0() as rank0:
        one = await first(here, run)
        publish = Broadcast(learner=run.learner, rank0=rank0)
        await publish.begin(v(one, 2))
        await publish.bucket(0, "a", "b", "c")
        await other.__aexit__()
        async with ScriptedSampler(
            script=here.sampler._script, port=urlsplit(other.url).port or 0
        ) as anew:
            assert (await publish.commit()).samplers == 1
            server = run.engine._pool.named(other.url)
            assert not server.up.is_set()
            await until(lambda: "waits for the folder" in server.why, "the reason")
            assert anew.scheduler.weight_version == "default"
            assert here.sampler.scheduler.weight_version == str(v(one, 2))
            await run.learner.publish(v(one, 2), folder(here, "2"))
            await serves(run, anew, v(one, 2))


async def test_a_server_that_does_not_join_is_told_at_once(world: MakeWorld) -> None:
    """Nothing was paused, and the one that waits in the group is freed by the learner's end."""
    async with two(world, Faults(fail_joins=1)) as (here, other), here.engine() as run:
        one = await first(here, run)
        pauses = counted(here, "pause")
        async with Rank0() as rank0:
            publish = Broadcast(learner=run.learner, rank0=rank0)
            await publish.begin(v(one, 2))
            await refused(publish.ask(0, metas("a")), FAILED, "this failure is scripted")
        assert not pauses
        await serves(run, here.sampler, one)
        await serves(run, other, one)
        async with Rank0() as rank0:
            assert (
                await Broadcast(learner=run.learner, rank0=rank0).whole(v(one, 2))
            ).samplers == 2


@pytest.mark.parametrize("amid", ["joining", "buckets", "a bucket"])
async def test_a_learner_that_falls_silent(world: MakeWorld, amid: str) -> None:
    here = await world(run=RUN)
    async with here.engine() as run:
        one = await first(here, run)
        async with Rank0() as rank0:
            publish = Broadcast(learner=run.learner, rank0=rank0)
            await publish.begin(v(one, 2), lease=1)
            if amid == "joining":
                await rank0.joined()
            else:
                await publish.bucket(0, "a")
            if amid == "a bucket":
                await refused(publish.ask(1, metas("b")), FAILED, "its lease of 1 s ended")
                # It hangs in the broadcast, and nobody can call it back.
                server = run.engine._pool.named(here.sampler.url)
                await holds_for(0.2, lambda: not server.up.is_set(), "the server to be set aside")
            else:
                await until(lambda: run.engine._broadcasts._open is None, "the lease's end")
        await serves(run, here.sampler, one)
        await refused(publish.commit(), FAILED, "its lease of 1 s ended")
        assert (await run.learner.status()).state == "running"
        async with Rank0() as rank0:
            await Broadcast(learner=run.learner, rank0=rank0).whole(v(one, 2))
        await serves(run, here.sampler, v(one, 2))


async def test_an_abort_before_a_bucket_moves_nothing_and_after_one_brings_the_folder(
    world: MakeWorld,
) -> None:
    """Streams under way go on: by themselves, or from what they have."""
    here = await world(run=RUN, timing=Timing(tokens_per_second=8))
    async with here.engine() as run:
        one = await first(here, run)
        loads, pauses = counted(here, "load_weights"), counted(here, "pause")
        for names in ((), ("a", "b")):
            await until(lambda: here.sampler.scheduler.running > 0, "a stream")
            async with Rank0() as rank0:
                publish = Broadcast(learner=run.learner, rank0=rank0)
                await publish.begin(v(one, 2))
                await rank0.joined()
                if names:
                    await publish.bucket(0, *names)
                await publish.abort()
                await refused(publish.ask(1, metas("c")), FAILED, "its learner ended it")
            await serves(run, here.sampler, one)
            assert len(loads) == len(pauses) == bool(names)
        await run.learner.publish(v(one, 2), folder(here, "2"))
        (group,) = await run.learner.lease(v(one, 2))
        assert set(group.members[0].weight_versions) <= {v(one, 0), one, v(one, 2)}
        assert run.engine._pool.statistics()[here.sampler.url]["failures"] == {}


async def test_what_a_server_with_a_part_of_the_weights_writes_is_not_taken(
    world: MakeWorld,
) -> None:
    """It calls them by a name that is no version of the run."""
    here = await world(run=RUN)
    async with here.engine("engine.drain_s=0") as run, Rank0() as rank0:
        one = await first(here, run)
        publish = Broadcast(learner=run.learner, rank0=rank0)
        await publish.begin(v(one, 2))
        await publish.bucket(0, "a")
        assert here.sampler.scheduler.weight_version == f"{publish.id}, in part"
        assert here.sampler.scheduler.weight_version not in run.engine._pool.known


async def test_an_engine_that_is_restarted_between_buckets(world: MakeWorld) -> None:
    here = await world(run=RUN)
    rank0 = await Rank0().__aenter__()
    async with here.engine("engine.drain_s=0") as run:
        one = await first(here, run)
        publish = Broadcast(learner=run.learner, rank0=rank0)
        await publish.begin(v(one, 2))
        await publish.bucket(0, "a", "b")
        asked = asyncio.create_task(publish.ask(1, metas("c")))
        await until(lambda: run.engine._broadcasts._open.state.bucket[0] == 1, "the bucket")  # type: ignore[union-attr, index]
        await run.drain()
        with pytest.raises((ServiceError, TransportError)):
            await asked
    await rank0.close()  # until then the server hangs in the broadcast
    await until(lambda: not here.sampler.scheduler.paused, "the end of its pause")
    async with here.engine() as run, Rank0() as rank0:
        await serves(run, here.sampler, one)
        assert await run.learner.version() == v(one, 2)  # it was given: the name is taken
        publish.learner = run.learner
        await refused(publish.ask(1, metas("c")), FAILED, "the engine was restarted")
        await Broadcast(learner=run.learner, rank0=rank0).whole(v(one, 2))
        await serves(run, here.sampler, v(one, 2))


async def test_an_engine_that_was_killed_between_buckets(world: MakeWorld) -> None:
    """It could put nothing in order: the next life finds a pause, an update and a group."""
    here = await world(run=RUN)
    async with here.engine() as run:
        one = await first(here, run)
    async with Rank0() as rank0:
        address = {"address": "127.0.0.1", "port": rank0.port}
        joined = asyncio.create_task(
            here.sampler.groups.init(rank=1, world_size=2, name="old", **address)  # type: ignore[arg-type]
        )
        await joined
        await here.sampler.scheduler.pause("retract")  # type: ignore[arg-type]
        await here.sampler.groups.begin()
        here.sampler.scheduler.rename_weights("old, in part")
        async with here.engine() as run:
            await serves(run, here.sampler, one)
            async with Rank0() as own:
                await Broadcast(learner=run.learner, rank0=own).whole(v(one, 2))
            await serves(run, here.sampler, v(one, 2))


async def test_a_learner_that_takes_the_run_ends_the_publish_of_the_one_before(
    world: MakeWorld,
) -> None:
    here = await world(run=RUN)
    async with here.engine() as run, Rank0() as rank0:
        one = await first(here, run)
        await policy(run, "older")
        publish = Broadcast(learner=run.learner, rank0=rank0, name="older")
        await publish.begin(v(one, 2))
        await publish.bucket(0, "a")
        asked = asyncio.create_task(publish.ask(1, metas("b")))
        await until(lambda: run.engine._broadcasts._open.state.bucket[0] == 1, "the bucket")  # type: ignore[union-attr, index]
        taking = asyncio.create_task(policy(run, "newer"))
        superseded = reasons.ERROR_REASON_SUPERSEDED
        await refused(asked, superseded, "another learner has taken the run over")
        await rank0.close()  # the older one ends
        assert (await taking).version.step == 1
        await serves(run, here.sampler, one)
        await refused(publish.commit(), superseded, "taken the run over")
        late = Broadcast(learner=run.learner, rank0=rank0, name="older")
        await refused(late.begin(v(one, 2), port=1), superseded, "taken the run over")
        async with Rank0() as own:
            publish = Broadcast(learner=run.learner, rank0=own, name="newer")
            await publish.whole(v(one, 2))
        assert here.sampler.scheduler.weight_version == str(v(one, 2))


async def test_a_caller_that_goes_away_leaves_the_publish_to_itself(world: MakeWorld) -> None:
    """The same request asked again joins what goes on."""
    here = await world(run=RUN)
    async with here.engine() as run, Rank0() as rank0:
        one = await first(here, run)
        publish = Broadcast(learner=run.learner, rank0=rank0)
        await publish.begin(v(one, 2))
        begun = publish.id
        await publish.begin(v(one, 2))
        assert publish.id == begun
        dying = asyncio.create_task(publish.ask(0, metas("ab")))
        await until(lambda: here.sampler.scheduler.paused, "the pause")
        dying.cancel()
        await asyncio.gather(dying, return_exceptions=True)
        again = asyncio.create_task(publish.ask(0, metas("ab")))
        await rank0.broadcast([SIZES["a"], SIZES["b"]])
        await again
        await publish.ask(0, metas("ab"))
        assert here.sampler.groups.received == ["a", "b"]
        await publish.bucket(1, "c")
        assert (await publish.commit()).samplers == 1


async def test_another_publish_of_the_learner_ends_the_open_one(world: MakeWorld) -> None:
    """Begun anew, or by a folder: nobody waits for a lease."""
    here = await world(run=RUN)
    async with here.engine() as run:
        one = await first(here, run)
        async with Rank0() as left, Rank0() as rank0:
            publish = Broadcast(learner=run.learner, rank0=left)
            await publish.begin(v(one, 2))
            await publish.bucket(0, "a")
            again = Broadcast(learner=run.learner, rank0=rank0)
            await again.whole(v(one, 2))
            await refused(publish.ask(1, metas("b")), FAILED, "no publish .* is open here")
        async with Rank0() as rank0:
            publish = Broadcast(learner=run.learner, rank0=rank0)
            await publish.begin(v(one, 3))
            await publish.bucket(0, "a")
            assert (await run.learner.publish(v(one, 3), folder(here, "3"))).samplers == 1
            await refused(publish.ask(1, metas("b")), FAILED, f"{v(one, 3)} comes by a folder")
        await serves(run, here.sampler, v(one, 3))
        assert await journaled(run) == v(one, 3)


async def test_a_store_that_nobody_reaches_hangs_no_server(world: MakeWorld) -> None:
    here = await world(run=RUN)
    async with here.engine() as run, Rank0() as rank0:
        one = await first(here, run)
        publish = Broadcast(learner=run.learner, rank0=rank0)
        await refused(
            publish.begin(v(one, 2), port=1), FAILED, r"does not answer at 127\.0\.0\.1:1"
        )
        assert not here.sampler.groups._calls
        await publish.whole(v(one, 2))


async def test_a_server_that_sglang_cannot_update_over_a_group_is_named(world: MakeWorld) -> None:
    here = await world(run=RUN)
    here.sampler._control._info = {**here.sampler._control._info, "dp_size": 2}
    async with here.engine() as run, Rank0() as rank0:
        one = await first(here, run)
        publish = Broadcast(learner=run.learner, rank0=rank0)
        await refused(publish.begin(v(one, 2)), FAILED, "replicas or pipeline stages")
        await serves(run, here.sampler, one)


async def test_with_no_sampler_up_a_publish_waits_or_asks_for_the_folder(world: MakeWorld) -> None:
    here = await world(run=RUN)
    port = urlsplit(here.sampler.url).port or 0
    script = here.sampler._script
    async with here.engine("engine.drain_s=0") as run:
        one = await first(here, run)
        pool = run.engine._pool
        await here.sampler.__aexit__()
        pool.mark_down(pool.named(here.sampler.url), "the test says so")
        async with Rank0() as rank0:
            publish = Broadcast(learner=run.learner, rank0=rank0)
            await refused(publish.begin(v(one, 2), lease=1), FAILED, "its lease of 1 s ended")
            waiting = asyncio.create_task(publish.begin(v(one, 2)))
            await until(lambda: run.engine._broadcasts._open is not None, "the publish")
            async with ScriptedSampler(script=script, port=port) as back:
                await waiting
                await publish.bucket(0, "a", "b", "c")
                await publish.commit()
                assert back.scheduler.weight_version == str(v(one, 2))
                pool.mark_down(pool.named(back.url), "the test says so")
                async with Rank0() as other:
                    publish = Broadcast(learner=run.learner, rank0=other)
                    await refused(publish.begin(v(one, 3)), FAILED, "no sampler is up: publish a")
                await run.learner.publish(v(one, 3), folder(here, "3"))
                assert back.scheduler.weight_version == str(v(one, 3))
