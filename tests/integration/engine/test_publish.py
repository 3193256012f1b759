"""New weights: in order, on every sampler, and never half done."""

from __future__ import annotations

import asyncio
import os
import uuid
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager

import pytest

from bench.scripted import Timing
from engine.errors import StartupError
from tests.integration.engine.conftest import MakeWorld, World
from tests.support.engines import Learner, Running
from tests.support.sampler_loads import Loads
from tests.support.waiting import PATIENCE, holds_for, until
from tests.support.weights import safetensors
from toolwright.common.v1 import reasons_pb2 as reasons
from toolwright.policy.v1 import policy_pb2
from toolwright.rpc.channel import call, may_retry, open_channel
from toolwright.rpc.errors import ServiceError, TransportError
from toolwright.types import WeightVersion

pytestmark = pytest.mark.quick

RUN = {"steps": 9, "groups_per_step": 1, "group_size": 1}


def fresh(step: int) -> WeightVersion:
    return WeightVersion(lineage=uuid.uuid4().hex[:8], step=step)


def sampler_version(here: World) -> str:
    return here.sampler.scheduler.weight_version


@asynccontextmanager
async def idle(world: MakeWorld) -> AsyncIterator[tuple[World, Running]]:
    """A world and its engine, whose first group is whole."""
    here = await world(run=RUN)
    async with here.engine() as run:
        await run.learner.lease(run.version)
        yield here, run


async def refused(publish: Awaitable[object], reason: int, match: str) -> ServiceError:
    """The publish is refused for good."""
    with pytest.raises(ServiceError, match=match) as caught:
        await publish
    assert caught.value.reason == reason, caught.value
    assert not may_retry(caught.value)
    return caught.value


async def test_the_first_version_is_the_policy_and_stays_over_a_restart(world: MakeWorld) -> None:
    here = await world(run=RUN)
    async with here.engine() as run:
        first = run.at(1)
        assert run.version.step == 0
        assert sampler_version(here) == str(run.version)
        answer = await call(run.learner.policy.GetPolicy, policy_pb2.GetPolicyRequest(), timeout=9)
        assert answer.path == str(here.tables["policy"]["model"])
        assert answer.tokenizer_hash == here.codec.hash
        await run.learner.publish(first, here.weights("1"))
    here.sampler.scheduler.rename_weights("other")
    async with here.engine() as run:
        assert run.version == first
        assert sampler_version(here) == str(first)


async def test_a_publish_reaches_the_sampler_and_may_come_twice(world: MakeWorld) -> None:
    here = await world(run=RUN)
    async with here.engine() as run:
        answer = await run.learner.publish(run.at(1), here.weights("1"))
        assert answer.samplers == 1
        assert answer.paused.ToTimedelta().total_seconds() > 0
        assert sampler_version(here) == str(run.at(1))
        assert not here.sampler.scheduler.paused
        again = await run.learner.publish(run.at(1), here.weights("1"))
        assert (again.samplers, again.version) == (0, answer.version)
        await run.learner.publish(run.at(5), here.weights("5"))  # steps may be left out
        assert (await run.learner.status()).version.step == 5


async def test_a_folder_that_is_not_whole_is_refused_and_the_run_goes_on(world: MakeWorld) -> None:
    async with idle(world) as (here, run):
        asked = len(here.sampler.requests)
        cut = here.weights("cut")
        os.truncate(cut / "model.safetensors", 20)
        error = await refused(
            run.learner.publish(run.at(1), cut),
            reasons.ERROR_REASON_INVALID_REQUEST,
            r"model\.safetensors cannot be read: it has 20 bytes",
        )
        assert "whole Hugging Face folder" in error.fix
        assert sampler_version(here) == str(run.version) == str(await run.learner.version())
        assert len(here.sampler.requests) == asked
        await run.learner.publish(run.at(1), here.weights("cut"))  # written again, whole
        assert sampler_version(here) == str(run.at(1))
        await run.learner.lease(run.at(1), after=1)


async def test_another_policy_is_refused_before_a_sampler_hears_of_it(world: MakeWorld) -> None:
    """Also after a restart, which finds the shape in the newest folder."""
    here = await world(run=RUN)
    loads = Loads(here.sampler, go=True)
    invalid = reasons.ERROR_REASON_INVALID_REQUEST
    for life in (0, 1):
        async with here.engine() as run:
            now, then = run.at(1 + 2 * life), run.at(2 + 2 * life)
            await run.learner.publish(now, here.weights(f"{life}"))
            before = list(loads.loaded)
            other = here.weights("other")
            (other / "model.safetensors").write_bytes(safetensors({"w": 32}))
            error = await refused(
                run.learner.publish(then, other), invalid, r"tensor w has the shape \[8\].* \[4\]"
            )
            assert "run.folder" in error.fix
            here.weights("other")
            (other / "config.json").write_text('{"model_type": "qwen2"}', encoding="utf-8")
            await refused(run.learner.publish(then, other), invalid, "model_type = 'qwen2'")
            assert loads.loaded == before
            assert sampler_version(here) == str(now)
            await run.learner.publish(then, here.weights("other"))


async def test_newest_weights_that_a_power_cut_emptied_are_named(world: MakeWorld) -> None:
    here = await world(run=RUN)
    async with here.engine() as run:
        newest = run.at(1)
        await run.learner.publish(newest, here.weights("1"))
    os.truncate(here.folder / "weights" / "1" / "model.safetensors", 0)
    with pytest.raises(StartupError, match=rf"newest weights {newest} cannot be used.*1/mod"):
        async with here.engine():
            pass
    here.weights("1")
    async with here.engine() as run:
        assert run.version == newest


async def test_the_same_publish_asked_again_joins_the_one_under_way(world: MakeWorld) -> None:
    async with idle(world) as (here, run):
        loads, weights = Loads(here.sampler), here.weights("1")
        asks = [asyncio.create_task(run.learner.publish(run.at(1), weights)) for _ in range(9)]
        await loads.begun.wait()
        # Another version waits for its turn, and comes after it.
        later = asyncio.create_task(run.learner.publish(run.at(2), here.weights("2")))
        await holds_for(
            0.05, lambda: sampler_version(here) == str(run.version), "the later version to wait"
        )
        loads.go.set()
        assert {answer.samplers for answer in await asyncio.gather(*asks)} == {1}
        assert (await later).samplers == 1
        assert len(loads.loaded) == 2
        assert sampler_version(here) == str(run.at(2))


async def test_publishes_do_not_queue_without_end(world: MakeWorld) -> None:
    async with idle(world) as (here, run):
        loads, weights = Loads(here.sampler), here.weights("1")
        asks = [asyncio.create_task(run.learner.publish(run.at(1 + n), weights)) for n in range(4)]
        await loads.begun.wait()
        await until(lambda: len(run.engine._publisher._publishes) == 4, "four that wait")
        with pytest.raises(ServiceError, match="cannot wait behind") as caught:
            await run.learner.publish(run.at(9), weights)
        assert may_retry(caught.value)
        loads.go.set()
        await asyncio.gather(*asks)
        assert (await run.learner.publish(run.at(9), weights)).samplers == 1


async def test_an_engine_that_stops_in_a_publish_pauses_no_sampler(world: MakeWorld) -> None:
    """The version was not recorded: the next life has the old one, and the publish comes again."""
    here = await world(run=RUN)
    async with here.engine("engine.drain_s=0") as run:
        version = run.version
        await run.learner.lease(version)
        loads = Loads(here.sampler)
        asked = asyncio.create_task(run.learner.publish(run.at(1), here.weights("1")))
        await loads.begun.wait()
        await run.drain()
        with pytest.raises((ServiceError, TransportError)):
            await asked
        loads.go.set()
    assert not here.sampler.scheduler.paused
    async with here.engine() as run:
        assert run.version == version
        assert sampler_version(here) == str(version)
        await run.learner.publish(run.at(1), here.weights("1"))
        assert sampler_version(here) == str(run.at(1))


async def test_a_publish_that_comes_with_the_engine_s_end_is_answered(world: MakeWorld) -> None:
    """It had not begun: the learner hears of the end, and publishes again."""
    here = await world(run=RUN)
    async with here.engine() as run:
        publisher = run.engine._publisher
        ended, _ = await asyncio.gather(
            publisher.publish(run.at(1), here.weights("1"), None),
            publisher.stop(),
            return_exceptions=True,
        )
        assert isinstance(ended, ServiceError)
        assert ended.reason == reasons.ERROR_REASON_DRAINING
        assert may_retry(ended)


async def test_a_new_lineage_with_its_parent(world: MakeWorld) -> None:
    """What was sampled before is as old as the way over the fork, and the old lineage is over."""
    here = await world(run={**RUN, "groups_per_step": 2})
    async with here.engine() as run:
        old, new = run.version, fresh(0)
        first = await run.learner.lease(old, count=2)
        await run.learner.publish(run.at(1), here.weights("1"))
        second = await run.learner.lease(run.at(1), count=2, after=2)
        # The learner is back at step 0: nothing of its own steps is in the new lineage yet.
        await run.learner.publish(new, here.weights("new"), parent=old)
        assert sampler_version(here) == str(new)
        offered = await run.learner.lease(new, count=99, wait=0.3)
        numbers = {g.info.sequence_number for g in offered}
        assert numbers >= {g.info.sequence_number for g in first}
        assert not numbers & {g.info.sequence_number for g in second}  # one step off policy
        assert (await run.learner.status()).dropped_groups == 2
        for parent in (None, new):
            with pytest.raises(ServiceError, match=f"lineage {old.lineage} was left for"):
                await run.learner.publish(run.at(2), here.weights("2"), parent)
        newest = WeightVersion(lineage=new.lineage, step=1)
        await run.learner.publish(newest, here.weights("new1"))
    async with here.engine() as run:
        assert run.version == newest
        answer = await call(run.learner.policy.GetPolicy, policy_pb2.GetPolicyRequest(), timeout=9)
        assert [(f.lineage, f.parent.lineage, f.parent.step) for f in answer.forks] == [
            (new.lineage, old.lineage, 0)
        ]


async def test_a_learner_that_begins_anew_begins_at_step_0(world: MakeWorld) -> None:
    """As long as nothing was acknowledged; after that its groups are gone."""
    here = await world(run=RUN)
    async with here.engine() as run:
        own = fresh(0)
        await run.learner.publish(own, here.weights("own"))
        (group,) = await run.learner.lease(own)
        assert set(group.members[0].weight_versions) <= {run.version, own}
        await run.learner.acknowledge(group.info.sequence_number)
        error = await refused(
            run.learner.publish(fresh(0), here.weights("again")),
            reasons.ERROR_REASON_WRONG_LINEAGE,
            "are acknowledged and gone",
        )
        assert "run.folder" in error.fix


async def test_a_learner_that_dies_in_a_publish_leaves_it_whole(world: MakeWorld) -> None:
    async with idle(world) as (here, run):
        loads = Loads(here.sampler)
        dying = asyncio.create_task(run.learner.publish(run.at(1), here.weights("1")))
        await loads.begun.wait()
        dying.cancel()
        await asyncio.gather(dying, return_exceptions=True)
        again = asyncio.create_task(run.learner.publish(run.at(1), here.weights("1")))
        await holds_for(0.1, lambda: not again.done(), "the repetition to join the first")
        loads.go.set()
        assert (await again).samplers == 1  # what the first one, which went on, has done
        assert len(loads.loaded) == 1
        assert await run.learner.version() == run.at(1)
        assert sampler_version(here) == str(run.at(1))
        assert not here.sampler.scheduler.paused
        assert (await run.learner.status()).version.step == 1


async def test_an_engine_that_starts_puts_the_samplers_in_order(world: MakeWorld) -> None:
    """What an earlier life left is ended: requests aborted, a pause over."""
    import aiohttp

    here = await world(run=RUN, timing=Timing(tokens_per_second=20))
    body = {
        "rid": "left-over",
        "input_ids": [1, 2, 3],
        "stream": True,
        "sampling_params": {"max_new_tokens": 2000},
    }
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"{here.sampler.url}/generate", json=body) as left,
    ):
        await left.content.readany()
        await session.post(f"{here.sampler.url}/pause_generation", json={"mode": "in_place"})
        assert here.sampler.scheduler.paused
        async with here.engine("sampler.timeout_s=30") as run:
            assert not here.sampler.scheduler.paused
            assert '"type":"abort"' in await left.text()
            assert sampler_version(here) == str(run.version)


async def first_state(learner: Learner) -> str:
    """What the engine says as soon as it listens."""
    async with asyncio.timeout(PATIENCE):
        while True:
            try:
                return str((await learner.status()).state)
            except TransportError:
                await asyncio.sleep(0.02)


async def test_before_the_samplers_are_in_order_the_engine_says_wait(world: MakeWorld) -> None:
    """A learner that comes early hears that it may ask again, not that something is broken."""
    here = await world(run=RUN)
    loads = Loads(here.sampler)
    entering = here.engine()
    starting = asyncio.create_task(entering.__aenter__())
    try:
        async with open_channel(here.tables["run"]["engine"]) as channel:
            early = Learner(channel)
            assert await first_state(early) == "starting"
            for ask in (early.version(), early.publish(fresh(1), here.weights("1"))):
                with pytest.raises(ServiceError) as caught:
                    await ask
                assert caught.value.code.name == "UNAVAILABLE"
                assert may_retry(caught.value)
    finally:
        loads.go.set()
        await starting
        await entering.__aexit__(None, None, None)
