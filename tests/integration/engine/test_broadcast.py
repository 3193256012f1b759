"""New weights over a group of processes: what reaches the samplers, and when the folder follows."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from bench.scripted import Faults, ScriptedSampler, Timing
from tests.integration.engine.conftest import MakeWorld, World
from tests.support.broadcasts import SIZES, broadcast, metas, publish_whole
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


def folder(here: World, name: int | str) -> Path:
    return write_weights(here.folder / "weights" / str(name), SIZES)


@asynccontextmanager
async def begun(
    world: MakeWorld, *overrides: str, timing: Timing | None = None
) -> AsyncIterator[tuple[World, Running]]:
    """An engine at step 1, which came by a folder: the engine knows the policy's tensors."""
    here = await world(run=RUN, timing=timing)
    async with here.engine(*overrides) as run:
        await run.learner.publish(run.at(1), folder(here, 1))
        yield here, run


@asynccontextmanager
async def two(
    world: MakeWorld, *, faults: Faults | None = None, ranks: int = 1
) -> AsyncIterator[tuple[World, Running, ScriptedSampler]]:
    """The same with a second sampler, of `ranks` ranks."""
    here = await world(run=RUN)
    script = here.sampler._script
    async with ScriptedSampler(script=script, faults=faults, tensor_parallel=ranks) as other:
        here.tables["sampler"]["endpoints"].append(other.url)
        async with here.engine() as run:
            await run.learner.publish(run.at(1), folder(here, 1))
            yield here, run, other


async def policy(run: Running, learner: str = "") -> policy_pb2.GetPolicyResponse:
    request = policy_pb2.GetPolicyRequest(learner=learner)
    return await call(run.learner.policy.GetPolicy, request, timeout=9)


async def journaled(run: Running) -> WeightVersion | None:
    newest = await run.engine.journal.newest_version()
    return newest and newest[0]


async def refused(asked: Awaitable[object], reason: int, match: str) -> None:
    with pytest.raises(ServiceError, match=match) as caught:
        await asked
    assert caught.value.reason == reason, caught.value
    assert not may_retry(caught.value)


def at(here: World) -> str:
    """The version that the world's sampler serves."""
    return here.sampler.scheduler.weight_version


async def test_weights_come_without_a_folder_and_it_follows(world: MakeWorld) -> None:
    async with two(world, ranks=2) as (here, run, other), broadcast(run, 2) as publish:
        first, second = run.at(1), run.at(2)
        root = publish.root
        assert publish.world_size == 4
        await root.joined()
        assert {(told["name"], told["world_size"]) for told in root.told} == {(publish.id, 4)}
        held = sorted((told["rank"], told["ranks"]) for told in root.told)
        assert held in ([(1, 1), (2, 2)], [(1, 2), (3, 1)])
        assert (await run.learner.status()).state == "publishing"
        assert not here.sampler.scheduler.paused
        await publish.bucket(0, "a", "b")
        assert here.sampler.scheduler.paused
        assert other.scheduler.paused
        await publish.bucket(1, "c")
        assert await run.learner.version() == first
        answer = await publish.commit()
        assert (wire.version_from_proto(answer.version), answer.samplers) == (second, 2)
        assert answer.paused.ToTimedelta().total_seconds() > 0
        assert await publish.commit() == answer
        for sampler in (here.sampler, other):
            assert not sampler.scheduler.paused
            assert sampler.scheduler.weight_version == str(second)
            assert sampler.groups.received == ["a", "b", "c"]
        status = await run.learner.status()
        assert (status.state, status.version.step) == ("running", 2)
        groups = await run.learner.lease(second, count=9, wait=1)
        assert groups[-1].members[0].weight_versions == (second,)

        # Its folder: nothing moves, and the journal has it from then on.
        shown = await policy(run)
        assert shown.path == str(folder(here, 1))
        assert wire.version_from_proto(shown.path_version) == first
        assert await journaled(run) == first
        here.sampler.scheduler.load_weights = None  # type: ignore[assignment, method-assign]
        for _ in range(2):
            named = await run.learner.publish(second, folder(here, 2))
            assert (named.samplers, named.version) == (0, answer.version)
        assert await journaled(run) == second
        shown = await policy(run)
        assert shown.path == str(folder(here, 2))
        assert not shown.HasField("path_version")


async def test_what_does_not_belong_is_refused_and_the_publish_goes_on(world: MakeWorld) -> None:
    here = await world(run=RUN)
    invalid, wrong = reasons.ERROR_REASON_INVALID_REQUEST, reasons.ERROR_REASON_WRONG_VERSION
    async with here.engine() as run, broadcast(run) as publish:
        await refused(publish.begin(run.at(1)), invalid, "cannot read the folder")
        await run.learner.publish(run.at(1), folder(here, 1))
        await refused(publish.begin(run.at(1)), wrong, "not newer")
        stranger = WeightVersion(lineage="stranger", step=2)
        await refused(publish.begin(stranger), invalid, "begins with a folder")
        await refused(publish.begin(run.at(2), port=0), invalid, "not an address of a store")
        await publish.begin(run.at(2))
        tensor = policy_pb2.TensorMeta
        for index, tensors, match in (
            (1, metas("a"), "out of order: 0 is next"),
            (0, [], "no tensors"),
            (0, [tensor(name="x", dtype="float32", shape=[4])], "no tensor x"),
            (0, [tensor(name="a", dtype="float32", shape=[5])], r"\[5\].* \[4\]"),
            (0, [tensor(name="a", dtype="int64", shape=[4])], "type int64"),
            (0, [tensor(name="a", dtype="long", shape=[4])], "'long'"),
            (0, metas("aba"), "a came before"),
        ):
            await refused(publish.ask(index, tensors), invalid, match)
        await refused(publish.commit(), invalid, "3 tensors.* a is the first")
        assert not here.sampler.scheduler.paused
        await publish.bucket(0, "a", "b")
        await refused(publish.commit(), invalid, "1 tensors.* c is the first")
        waiting = asyncio.create_task(publish.ask(1, metas("c")))
        await until(lambda: run.engine._broadcasts._open.state.bucket[0] == 1, "the bucket")  # type: ignore[union-attr, index]
        await refused(publish.ask(2, metas("a")), invalid, "bucket 1 is still under way")
        await refused(publish.commit(), invalid, "bucket 1 is still under way")
        await publish.root.broadcast([SIZES["c"]])
        await waiting
        await publish.commit()
        assert at(here) == str(run.at(2))
        await publish.abort()  # it is over: nothing happens
        assert await run.learner.version() == run.at(2)


async def test_a_server_that_comes_back_waits_for_the_folder(world: MakeWorld) -> None:
    """It would serve older weights beside newer ones."""
    async with two(world) as (here, run, other):
        await publish_whole(run, 2)
        await other.__aexit__()
        server = run.engine._pool.named(other.url)
        run.engine._pool.mark_down(server, "the test says so")
        port = urlsplit(other.url).port or 0
        async with ScriptedSampler(script=here.sampler._script, port=port) as back:
            await until(lambda: "waits for the folder" in server.why, "the reason")
            assert back.scheduler.weight_version == "default"
            await holds_for(0.3, lambda: not server.up.is_set(), "the server to wait")
            await run.learner.publish(run.at(2), folder(here, 2))
            await until(server.up.is_set, "the server")
            assert back.scheduler.weight_version == str(run.at(2))


async def test_folders_may_come_after_later_versions(world: MakeWorld) -> None:
    async with begun(world) as (here, run):
        for step in (2, 3):
            await publish_whole(run, step)
        async with broadcast(run, 4) as publish:
            await run.learner.publish(run.at(2), folder(here, 2))  # beside one that is open
            assert await journaled(run) == run.at(2)
            await publish.bucket(0, "a", "b", "c")
            await publish.commit()
        other = write_weights(here.folder / "other", {**SIZES, "a": 64})
        invalid = reasons.ERROR_REASON_INVALID_REQUEST
        await refused(run.learner.publish(run.at(4), other), invalid, "another policy")
        assert await journaled(run) == run.at(2)
        await run.learner.publish(run.at(4), folder(here, 4))
        assert await journaled(run) == run.at(4)
        late = run.learner.publish(run.at(3), folder(here, 3))
        await refused(late, reasons.ERROR_REASON_WRONG_VERSION, "not newer")
        assert await journaled(run) == run.at(4)


async def test_an_engine_restarted_before_the_folder_serves_the_version_before(
    world: MakeWorld,
) -> None:
    """And names the newer one to a learner that starts: its name is taken."""
    async with begun(world) as (here, run):
        one, newer = run.at(1), run.at(2)
        await publish_whole(run, 2)
    async with here.engine() as run:
        assert (await run.learner.status()).version.step == 1
        assert at(here) == str(one)
        shown = await policy(run, "a learner that starts")
        assert wire.version_from_proto(shown.version) == newer
        assert wire.version_from_proto(shown.path_version) == one
        assert shown.path == str(folder(here, 1))
    async with here.engine() as run:  # of a learner that lived on, and publishes it again
        request = policy_pb2.PublishWeightsRequest(
            version=wire.version_to_proto(newer),
            path=str(folder(here, 2)),
            learner="a learner that starts",
        )
        answer = await call(run.learner.policy.PublishWeights, request, timeout=30)
        assert answer.samplers == 1
        assert at(here) == str(newer)
        assert not (await policy(run)).HasField("path_version")
