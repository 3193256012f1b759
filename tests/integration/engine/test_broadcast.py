"""New weights over a group of processes: what reaches the samplers, and when the folder follows."""

from __future__ import annotations

import asyncio
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from bench.scripted import ScriptedSampler
from bench.scripted.update_group import Rank0
from tests.integration.engine.conftest import MakeWorld, World
from tests.support.broadcasts import SIZES, Broadcast, metas
from tests.support.engines import Running
from tests.support.waiting import holds_for, until
from tests.support.weights import write_weights
from toolwright import wire
from toolwright.common.v1 import reasons_pb2 as reasons
from toolwright.policy.v1 import policy_pb2
from toolwright.rpc.channel import call, may_retry
from toolwright.rpc.errors import ServiceError
from toolwright.types import WeightVersion

pytestmark = pytest.mark.quick

RUN = {"steps": 9, "groups_per_step": 1, "group_size": 1}


def v(version: WeightVersion, step: int) -> WeightVersion:
    return WeightVersion(lineage=version.lineage, step=step)


def folder(here: World, name: str) -> Path:
    return write_weights(here.folder / "weights" / name, SIZES)


async def first(here: World, run: Running) -> WeightVersion:
    """Version 1, by a folder: the engine knows the policy's tensors from it."""
    begun = v(await run.learner.version(), 1)
    await run.learner.publish(begun, folder(here, "1"))
    return begun


async def policy(run: Running, learner: str = "") -> policy_pb2.GetPolicyResponse:
    request = policy_pb2.GetPolicyRequest(learner=learner)
    return await call(run.learner.policy.GetPolicy, request, timeout=9)


async def journaled(run: Running) -> WeightVersion | None:
    newest = await run.engine.journal.newest_version()
    return newest and newest[0]


async def refused(asked: object, reason: int, match: str) -> None:
    with pytest.raises(ServiceError, match=match) as caught:
        await asked  # type: ignore[misc]
    assert caught.value.reason == reason, caught.value
    assert not may_retry(caught.value)


async def test_weights_come_without_a_folder_and_it_follows(world: MakeWorld) -> None:
    here = await world(run=RUN)
    async with ScriptedSampler(script=here.sampler._script, tensor_parallel=2) as other:
        here.tables["sampler"]["endpoints"].append(other.url)
        async with here.engine() as run, Rank0() as rank0:
            one = await first(here, run)
            two = v(one, 2)
            (group,) = await run.learner.lease(one)
            publish = Broadcast(learner=run.learner, rank0=rank0)
            await publish.begin(two)
            assert publish.world_size == 4
            await rank0.joined()
            assert {(told["name"], told["world_size"]) for told in rank0.told} == {(publish.id, 4)}
            held = sorted((told["rank"], told["ranks"]) for told in rank0.told)
            assert held in ([(1, 1), (2, 2)], [(1, 2), (3, 1)])
            assert (await run.learner.status()).state == "publishing"
            assert not here.sampler.scheduler.paused
            await publish.bucket(0, "a", "b")
            assert here.sampler.scheduler.paused
            assert other.scheduler.paused
            await publish.bucket(1, "c")
            assert await run.learner.version() == one
            answer = await publish.commit()
            assert (wire.version_from_proto(answer.version), answer.samplers) == (two, 2)
            assert answer.paused.ToTimedelta().total_seconds() > 0
            assert await publish.commit() == answer
            for sampler in (here.sampler, other):
                assert not sampler.scheduler.paused
                assert sampler.scheduler.weight_version == str(two)
                assert sampler.groups.received == ["a", "b", "c"]
            status = await run.learner.status()
            assert (status.state, status.version.step) == ("running", 2)
            (group,) = await run.learner.lease(two, after=group.info.sequence_number)
            assert group.members[0].weight_versions == (two,)

            # Its folder: nothing moves, and the journal has it from then on.
            told = await policy(run)
            assert told.path == str(folder(here, "1"))
            assert wire.version_from_proto(told.path_version) == one
            assert await journaled(run) == one
            loads = here.sampler.scheduler.load_weights
            here.sampler.scheduler.load_weights = None  # type: ignore[assignment, method-assign]
            for _ in range(2):
                named = await run.learner.publish(two, folder(here, "2"))
                assert (named.samplers, named.version) == (0, answer.version)
            here.sampler.scheduler.load_weights = loads  # type: ignore[method-assign]
            assert await journaled(run) == two
            told = await policy(run)
            assert told.path == str(folder(here, "2"))
            assert not told.HasField("path_version")


async def test_what_does_not_belong_is_refused_and_the_publish_goes_on(world: MakeWorld) -> None:
    here = await world(run=RUN)
    invalid, wrong = reasons.ERROR_REASON_INVALID_REQUEST, reasons.ERROR_REASON_WRONG_VERSION
    async with here.engine() as run, Rank0() as rank0:
        publish = Broadcast(learner=run.learner, rank0=rank0)
        root = await run.learner.version()
        await refused(publish.begin(v(root, 1)), invalid, "cannot read the folder")
        one = await first(here, run)
        await refused(publish.begin(one), wrong, "not newer")
        stranger = WeightVersion(lineage="stranger", step=2)
        await refused(publish.begin(stranger), invalid, "begins with a folder")
        await refused(publish.begin(v(one, 2), port=0), invalid, "not an address of a store")
        await publish.begin(v(one, 2))
        for index, tensors, match in (
            (1, metas("a"), "out of order: 0 is next"),
            (0, [], "no tensors"),
            (0, [policy_pb2.TensorMeta(name="x", dtype="float32", shape=[4])], "no tensor x"),
            (0, [policy_pb2.TensorMeta(name="a", dtype="float32", shape=[5])], r"\[5\].* \[4\]"),
            (0, [policy_pb2.TensorMeta(name="a", dtype="int64", shape=[4])], "type int64"),
            (0, [policy_pb2.TensorMeta(name="a", dtype="long", shape=[4])], "'long'"),
            (0, metas("aba"), "a came before"),
        ):
            await refused(publish.ask(index, tensors), invalid, match)
        await refused(publish.commit(), invalid, "3 tensors.* a is the first")
        assert not here.sampler.scheduler.paused
        await publish.bucket(0, "a", "b")
        await refused(publish.ask(1, metas("ca")), invalid, "a came before")
        await refused(publish.commit(), invalid, "1 tensors.* c is the first")
        waiting = asyncio.create_task(publish.ask(1, metas("c")))
        await until(lambda: run.engine._broadcasts._open.state.bucket[0] == 1, "the bucket")  # type: ignore[union-attr, index]
        await refused(publish.ask(2, metas("a")), invalid, "bucket 1 is still under way")
        await refused(publish.commit(), invalid, "bucket 1 is still under way")
        await rank0.broadcast([SIZES["c"]])
        await waiting
        await publish.commit()
        assert here.sampler.scheduler.weight_version == str(v(one, 2))
        await publish.abort()  # it is over: nothing happens
        assert await run.learner.version() == v(one, 2)


async def test_a_server_that_comes_back_waits_for_the_folder(world: MakeWorld) -> None:
    """It would serve older weights beside newer ones."""
    here = await world(run=RUN)
    async with ScriptedSampler(script=here.sampler._script) as other:
        here.tables["sampler"]["endpoints"].append(other.url)
        async with here.engine() as run, Rank0() as rank0:
            one = await first(here, run)
            await Broadcast(learner=run.learner, rank0=rank0).whole(v(one, 2))
            await other.__aexit__()
            server = run.engine._pool.named(other.url)
            run.engine._pool.mark_down(server, "the test says so")
            async with ScriptedSampler(
                script=here.sampler._script, port=urlsplit(other.url).port or 0
            ) as back:
                await until(lambda: "waits for the folder" in server.why, "the reason")
                assert back.scheduler.weight_version == "default"
                await holds_for(0.3, lambda: not server.up.is_set(), "the server to wait")
                await run.learner.publish(v(one, 2), folder(here, "2"))
                await until(server.up.is_set, "the server")
                assert back.scheduler.weight_version == str(v(one, 2))


async def test_folders_may_come_after_later_versions(world: MakeWorld) -> None:
    here = await world(run=RUN)
    async with here.engine() as run:
        one = await first(here, run)
        for step in (2, 3):
            async with Rank0() as rank0:
                await Broadcast(learner=run.learner, rank0=rank0).whole(v(one, step))
        async with Rank0() as rank0:
            publish = Broadcast(learner=run.learner, rank0=rank0)
            await publish.begin(v(one, 4))
            await run.learner.publish(v(one, 2), folder(here, "2"))  # beside one that is open
            assert await journaled(run) == v(one, 2)
            await publish.bucket(0, "a", "b", "c")
            await publish.commit()
        await run.learner.publish(v(one, 4), folder(here, "4"))
        assert await journaled(run) == v(one, 4)
        await refused(
            run.learner.publish(v(one, 3), folder(here, "3")),
            reasons.ERROR_REASON_WRONG_VERSION,
            "not newer",
        )
        assert await journaled(run) == v(one, 4)


async def test_a_folder_that_is_not_the_versions_is_refused(world: MakeWorld) -> None:
    here = await world(run=RUN)
    async with here.engine() as run, Rank0() as rank0:
        one = await first(here, run)
        await Broadcast(learner=run.learner, rank0=rank0).whole(v(one, 2))
        other = write_weights(here.folder / "other", {**SIZES, "a": 64})
        await refused(
            run.learner.publish(v(one, 2), other),
            reasons.ERROR_REASON_INVALID_REQUEST,
            "another policy",
        )
        assert await journaled(run) == one
        await run.learner.publish(v(one, 2), folder(here, "2"))
        assert await journaled(run) == v(one, 2)


async def test_an_engine_restarted_before_the_folder_serves_the_version_before(
    world: MakeWorld,
) -> None:
    """And names the newer one to a learner that starts: its name is taken."""
    here = await world(run=RUN)
    async with here.engine() as run, Rank0() as rank0:
        one = await first(here, run)
        two = v(one, 2)
        await Broadcast(learner=run.learner, rank0=rank0).whole(two)
    async with here.engine() as run:
        assert (await run.learner.status()).version.step == 1
        assert here.sampler.scheduler.weight_version == str(one)
        told = await policy(run, "a learner that starts")
        assert wire.version_from_proto(told.version) == two
        assert wire.version_from_proto(told.path_version) == one
        assert told.path == str(folder(here, "1"))
    async with here.engine() as run:  # of a learner that lived on, and publishes it again
        request = policy_pb2.PublishWeightsRequest(
            version=wire.version_to_proto(two),
            path=str(folder(here, "2")),
            learner="a learner that starts",
        )
        answer = await call(run.learner.policy.PublishWeights, request, timeout=30)
        assert answer.samplers == 1
        assert here.sampler.scheduler.weight_version == str(two)
        assert not (await policy(run)).HasField("path_version")
