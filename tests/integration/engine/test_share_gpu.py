"""Samplers that share their GPU with the learner: released for its step, resumed by its publish.

The scripted sampler dies of every call that comes at the wrong time, as the real one does.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

import pytest

from bench.scripted import Faults, ScriptedSampler, Timing
from engine.core.sampler import memory
from engine.errors import StartupError
from tests.integration.engine.conftest import MakeWorld, World
from tests.integration.engine.test_publish import RUN, refused, sampler_version
from tests.support.engines import Running
from tests.support.evaluations import evaluated, lane, suite
from tests.support.waiting import holds_for, until
from toolwright.common.v1 import reasons_pb2 as reasons
from toolwright.policy.v1 import policy_pb2 as policy
from toolwright.rpc.channel import call
from toolwright.rpc.errors import ServiceError

pytestmark = pytest.mark.quick

SHARED = {**RUN, "share_gpu": True}
ALL = {"weights", "kv_cache", "cuda_graph"}


async def release(run: Running) -> policy.ReleaseMemoryResponse:
    return await call(run.learner.policy.ReleaseMemory, policy.ReleaseMemoryRequest(), timeout=30)


async def resume(run: Running) -> policy.ResumeMemoryResponse:
    return await call(run.learner.policy.ResumeMemory, policy.ResumeMemoryRequest(), timeout=30)


@asynccontextmanager
async def trained(world: MakeWorld) -> AsyncIterator[tuple[World, Running]]:
    """An engine whose learner has leased a group and has the sampler's memory."""
    here = await world(run=SHARED)
    async with here.engine() as run:
        await run.learner.lease(run.version)
        assert (await release(run)).samplers == 1
        yield here, run
    alive(here.sampler)


def alive(sampler: ScriptedSampler) -> None:
    assert not sampler.scheduler.memory.died


async def test_nothing_is_sampled_while_the_learner_trains(world: MakeWorld) -> None:
    async with trained(world) as (here, run):
        scheduler = here.sampler.scheduler
        assert scheduler.memory.released == ALL
        sampled = scheduler.sampled
        assert (await run.learner.status()).state == "training"
        assert (await release(run)).samplers == 1, "again, and nothing changes"
        await holds_for(0.3, lambda: scheduler.sampled == sampled, "silence")
        answer = await run.learner.publish(run.at(1), here.weights("1"))
        assert answer.samplers == 1
        assert not scheduler.memory.released
        assert not scheduler.paused
        assert sampler_version(here) == str(run.at(1))
        (second,) = await run.learner.lease(run.at(1), after=1)
        assert second.members[0].weight_versions == (run.at(1),)


async def test_the_memory_comes_back_without_a_publish(world: MakeWorld) -> None:
    async with trained(world) as (here, run):
        assert (await resume(run)).samplers == 1
        assert (await resume(run)).samplers == 1, "again, and nothing changes"
        assert not here.sampler.scheduler.memory.released
        assert sampler_version(here) == str(run.version)
        assert (await run.learner.status()).state == "running"


async def test_fifty_cycles_leave_no_memory_released(world: MakeWorld) -> None:
    async with trained(world) as (here, run):
        folder = here.weights("1")
        for step in range(1, 51):
            await release(run)
            await run.learner.publish(run.at(step), folder)
            assert not here.sampler.scheduler.memory.released
        assert here.sampler.scheduler.memory.cycles == 50


async def test_an_action_goes_on_after_the_step(world: MakeWorld) -> None:
    here = await world(run=SHARED, timing=Timing(tokens_per_second=20.0, seed=1))
    async with here.engine() as run:
        await until(lambda: here.sampler.scheduler.sampled >= 3, "tokens")
        await release(run)
        await holds_for(0.5, lambda: here.sampler.scheduler.running == 0, "no reply")
        await resume(run)
        (group,) = await run.learner.lease(run.version)
        assert [author for author, _ in here.texts(group.members[0])].count("model") == 2
    alive(here.sampler)


async def test_weights_that_do_not_load_leave_the_old_ones(world: MakeWorld) -> None:
    async with trained(world) as (here, run):
        here.sampler._control._failures_left = 1
        with pytest.raises(ServiceError, match="scripted") as caught:
            await run.learner.publish(run.at(1), here.weights("1"))
        assert caught.value.reason == reasons.ERROR_REASON_PUBLISH_FAILED
        await until(lambda: run.engine._pool.any_up, "the sampler", 5)
        assert sampler_version(here) == str(run.version)
        assert not here.sampler.scheduler.memory.released


async def test_an_engine_that_died_leaves_the_memory_to_the_learner(world: MakeWorld) -> None:
    """The next one does not know whether the learner still trains. Its publish ends it."""
    here = await world(run=SHARED)
    async with here.engine() as run:
        await run.learner.lease(run.version)
        await release(run)
        first = run.version
    assert here.sampler.scheduler.memory.released == ALL
    async with here.engine() as run:
        assert run.version == first
        assert here.sampler.scheduler.memory.released == ALL
        assert (await run.learner.status()).state == "training"
        assert (await release(run)).samplers == 1
        await run.learner.publish(run.at(1), here.weights("1"))
        assert sampler_version(here) == str(run.at(1))
    alive(here.sampler)


async def test_a_run_that_shares_nothing_takes_the_memory_back(world: MakeWorld) -> None:
    here = await world(run=SHARED)
    async with here.engine() as run:
        await release(run)
    async with here.engine(run={"share_gpu": False}) as run:
        assert not here.sampler.scheduler.memory.released
        await run.learner.lease(run.version)
        await refused(release(run), reasons.ERROR_REASON_INVALID_REQUEST, "share_gpu = true")
    alive(here.sampler)


async def test_a_sampler_that_restarts_meanwhile_releases_its_memory(world: MakeWorld) -> None:
    async with trained(world) as (here, run):
        port, script = urlsplit(here.sampler.url).port or 0, here.sampler._script
        await here.sampler.__aexit__()
        async with ScriptedSampler(script=script, port=port) as back:
            await until(lambda: back.scheduler.memory.released == ALL, "its memory", 10)
            assert (await run.learner.publish(run.at(1), here.weights("1"))).samplers == 1
            assert back.scheduler.weight_version == str(run.at(1))
            await run.learner.lease(run.at(1), after=1)
            alive(back)


async def test_a_sampler_that_restarts_during_the_publish_comes_back(world: MakeWorld) -> None:
    """It has all of its memory, and lost the name that says otherwise."""
    async with trained(world) as (here, run):
        port, script = urlsplit(here.sampler.url).port or 0, here.sampler._script
        await here.sampler.__aexit__()
        publish = asyncio.create_task(run.learner.publish(run.at(1), here.weights("1")))
        await holds_for(0.3, lambda: not publish.done(), "the publish to wait")
        async with ScriptedSampler(script=script, port=port) as back:
            assert (await publish).samplers == 1
            assert back.scheduler.weight_version == str(run.at(1))
            alive(back)


async def test_a_change_that_was_cut_needs_a_new_sampler(world: MakeWorld) -> None:
    """SGLang dies of a resume of memory that it has, and reports nothing."""
    here = await world(run=SHARED)
    here.sampler.scheduler.rename_weights(memory.CHANGING)
    with pytest.raises(StartupError, match="start this sampler anew"):
        async with here.engine():
            pass


async def test_an_evaluation_comes_first(world: MakeWorld) -> None:
    timing = Timing(tokens_per_second=40.0, seed=1)
    here = await world(run=SHARED, timing=timing, engine=lane(suite(n=2)))
    async with here.engine() as run:
        await until(lambda: run.engine._evaluation.running > 0, "the evaluation")
        await release(run)
        await evaluated(run, 1)
        assert here.sampler.scheduler.memory.released == ALL
    alive(here.sampler)


async def test_a_sampler_that_keeps_its_memory_is_refused(
    world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = await world(run=SHARED, faults=Faults())
    here.sampler._control._info = {
        **here.sampler._control._info, "device": "cuda", "enable_memory_saver": False,
    }  # fmt: skip
    with pytest.raises(StartupError, match="--enable-memory-saver"):
        async with here.engine():
            pass
