"""Control of samplers that refuse, hang, are away, come back, or serve another run."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

import pytest

from bench.scripted import Faults, ScriptedSampler, replies
from engine.config import EngineTable
from engine.core.sampler.fleet import Fleet
from engine.errors import SharedSampler, StartupError
from engine.serving.serve import Engine
from tests.chaos.harm.proxy import Mode, Proxy
from tests.integration.engine.conftest import MakeWorld, World
from tests.integration.engine.test_publish import RUN, idle, sampler_version
from tests.support.net import free_port
from tests.support.recipes import ONE, merged, write_recipe
from tests.support.sampler_loads import Loads
from tests.support.tools import held
from tests.support.waiting import holds_for, until
from toolwright.common.v1 import reasons_pb2 as reasons
from toolwright.recipe import load_recipe
from toolwright.rpc.errors import ServiceError

pytestmark = pytest.mark.quick


@asynccontextmanager
async def two_samplers(world: MakeWorld) -> AsyncIterator[tuple[World, ScriptedSampler]]:
    """A world with another sampler."""
    here = await world(run=RUN)
    async with ScriptedSampler(script=here.sampler._script) as other:
        here.tables["sampler"]["endpoints"].append(other.url)
        yield here, other


async def test_a_sampler_that_refuses_weights_gets_the_old_ones_back(world: MakeWorld) -> None:
    async with idle(world) as (here, run):
        Loads(here.sampler, go=True, refuse=1)
        with pytest.raises(ServiceError, match="cache was not flushed") as caught:
            await run.learner.publish(run.at(1), here.weights("1"))
        assert caught.value.reason == reasons.ERROR_REASON_PUBLISH_FAILED
        assert await run.learner.version() == run.version
        assert not here.sampler.scheduler.paused
        assert str(run.at(1)) not in run.engine._pool.known, "nothing written under it counts"
        # Once it is back up the same publish can be tried again, and is really done.
        await until(lambda: run.engine._pool.servers[0].up.is_set(), "the sampler", 5)
        assert sampler_version(here) == str(run.version)
        answer = await run.learner.publish(run.at(1), here.weights("1"))
        assert answer.samplers == 1
        assert sampler_version(here) == str(run.at(1))
        (second,) = await run.learner.lease(run.at(1), after=1)
        assert second.members[0].weight_versions == (run.at(1),)


async def test_an_update_that_changed_nothing_is_seen(world: MakeWorld) -> None:
    here = await world(run=RUN, faults=Faults(stale_weights=True))
    here.sampler.scheduler.rename_weights("default")
    with pytest.raises(StartupError, match=r"did not take the weights.*serves 'default' after"):
        async with here.engine():
            pass


@pytest.mark.parametrize("refuses", [0, 1])
async def test_with_no_sampler_left_a_publish_waits_for_one(world: MakeWorld, refuses: int) -> None:
    """It is done with the first sampler that is back, before any request, or ends if that one
    refuses."""
    async with idle(world) as (here, run):
        port, script = urlsplit(here.sampler.url).port or 0, here.sampler._script
        await here.sampler.__aexit__()
        publish = asyncio.create_task(run.learner.publish(run.at(1), here.weights("1")))
        await holds_for(0.5, lambda: not publish.done(), "the publish to wait")
        assert await run.learner.version() == run.version
        faults = Faults(fail_updates=refuses)
        async with ScriptedSampler(script=script, port=port, faults=faults) as back:
            if refuses:
                with pytest.raises(ServiceError, match="scripted") as caught:
                    await publish
                assert caught.value.reason == reasons.ERROR_REASON_PUBLISH_FAILED
                assert await run.learner.version() == run.version
            else:
                assert (await publish).samplers == 1
                assert back.scheduler.weight_version == str(run.at(1))
                assert await run.learner.version() == run.at(1)


async def test_a_sampler_that_refuses_is_set_aside_and_comes_back(world: MakeWorld) -> None:
    """The others and the learner do not wait for it."""
    async with two_samplers(world) as (here, other), here.engine() as run:
        await run.learner.lease(run.version)
        Loads(other, go=True, refuse=1)
        assert (await run.learner.publish(run.at(1), here.weights("1"))).samplers == 1
        shown = run.engine._pool.statistics()
        assert (shown[here.sampler.url]["up"], shown[other.url]["up"]) == (True, False)
        assert "cache was not flushed" in shown[other.url]["why"]
        await until(lambda: all(s.up.is_set() for s in run.engine._pool.servers), "both")
        assert other.scheduler.weight_version == str(run.at(1))
        assert not other.scheduler.paused


async def test_a_sampler_that_hangs_holds_up_neither_the_start_nor_a_publish(
    world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engine.core.sampler.control.GRACE_SECONDS", 0.5)
    async with two_samplers(world) as (here, other):
        loads = Loads(other)
        async with here.engine() as run:
            await run.learner.lease(run.version)
            loads.go.set()
            await until(lambda: run.engine._pool.statistics()[other.url]["up"], "the other")
            assert other.scheduler.weight_version == str(run.version)
            loads.go.clear()
            assert (await run.learner.publish(run.at(1), here.weights("1"))).samplers == 1
            assert run.engine._pool.statistics()[here.sampler.url]["up"]
            loads.go.set()
            await until(lambda: other.scheduler.weight_version == str(run.at(1)), "the newest")
            await until(lambda: not other.scheduler.paused, "the end of its pause")


async def test_a_sampler_that_comes_back_amid_a_publish_comes_back_with_the_newest(
    world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It loads the version before, which is no longer the newest when that is done."""
    monkeypatch.setattr("engine.core.sampler.control.GRACE_SECONDS", 0.1)
    async with two_samplers(world) as (here, other):
        loads = Loads(other)
        async with here.engine() as run:
            await run.learner.lease(run.version)
            await until(lambda: len(loads.loaded) == 2, "its second load, after it was set aside")
            await run.learner.publish(run.at(1), here.weights("1"))
            loads.go.set()
            await until(lambda: run.engine._pool.statistics()[other.url]["up"], "the other")
            assert other.scheduler.weight_version == str(run.at(1))


SOON_S = 5.0
"""Far below the time that a control call may take."""


@pytest.fixture
def proxy() -> Iterator[Proxy]:
    made = Proxy()
    yield made
    made.close()


async def test_a_control_call_does_not_wait_on_an_earlier_ones_connection(proxy: Proxy) -> None:
    async with ScriptedSampler(script=replies([[2]])) as sampler:
        link = proxy.link(free_port(), int(sampler.url.rpartition(":")[2]))
        fleet = Fleet([f"http://127.0.0.1:{link.port}"], silence=60.0, sees=False)
        await fleet.open()
        try:
            link.set(Mode.HOLE)
            link.set(Mode.PASS)
            async with asyncio.timeout(SOON_S):
                await fleet.servers[0].client.pause("abort")
            assert sampler.scheduler.paused
        finally:
            await fleet.close()


async def test_a_run_whose_sampler_another_run_takes_ends_and_says_so(world: MakeWorld) -> None:
    pause = asyncio.Event()
    here = await world(tools=held(pause), run=ONE)
    recipe = load_recipe(write_recipe(here.folder, here.tables))
    first = asyncio.create_task(Engine(recipe, recipe.table("engine", EngineTable)).run())
    await here.tools.called.wait()  # its trajectory is between two turns
    ours = here.sampler.scheduler.weight_version
    other = merged(here.tables, {"run": {"folder": "other", "engine": "127.0.0.1:1"}})
    other["engine"] = {**other["engine"], "listen": "unix:" + str(here.folder / "other.sock")}
    taken = load_recipe(write_recipe(here.folder / "second", merged(other, {})))
    second = Engine(taken, taken.table("engine", EngineTable))
    running = asyncio.create_task(second.run())
    await until(lambda: here.sampler.scheduler.weight_version != ours, "the other run's weights")
    pause.set()
    with pytest.raises(BaseExceptionGroup) as ended:
        await asyncio.wait_for(first, 30)
    (error,) = leaves(ended.value)
    assert isinstance(error, SharedSampler)
    theirs = here.sampler.scheduler.weight_version
    assert f"changed the weights of {here.sampler.url} (they are {theirs} now" in str(error)
    assert "give each run its own sampler.endpoints" in str(error)
    second.stop()
    await asyncio.wait_for(running, 30)
    assert here.sampler.scheduler.weight_version == theirs


def leaves(error: BaseException) -> list[BaseException]:
    if not isinstance(error, BaseExceptionGroup):
        return [error]
    return [leaf for inner in error.exceptions for leaf in leaves(inner)]
