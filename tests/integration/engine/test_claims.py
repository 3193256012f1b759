"""One learner at a time: the learner's own client at the engine's own door."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

import pytest

from bench.scripted import Timing
from learner.errors import LearnerError, MismatchError, TakenError
from learner.intake.agree import join
from learner.intake.client import EngineClient
from tests.integration.engine.conftest import MakeWorld, World
from tests.integration.engine.test_publish import RUN, sampler_version
from tests.support.evaluations import lane, suite, v
from tests.support.sampler_loads import Loads
from tests.support.waiting import until
from toolwright.common.v1 import reasons_pb2 as reasons
from toolwright.recipe import load_recipe
from toolwright.rpc.channel import may_retry
from toolwright.rpc.errors import ServiceError
from toolwright.types import WeightVersion

pytestmark = pytest.mark.quick

Answer = TypeVar("Answer")


class Beside:
    """A learner's client in a thread of its own, as in a process of its own."""

    def __init__(self, address: str) -> None:
        self._thread = ThreadPoolExecutor(1)
        self._address = address
        self.said: list[str] = []

    async def __aenter__(self) -> Beside:
        self.client = await self.do(
            lambda: EngineClient(self._address, patience=20, say=self.said.append)
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.do(lambda: self.client.__exit__(None, None, None))
        self._thread.shutdown()

    async def do(self, work: Callable[[], Answer]) -> Answer:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    async def take(self, here: World, *overrides: str, lineage: str = "") -> WeightVersion | None:
        """As `learner run` does at its start, with the world's recipe and `overrides`."""
        recipe = load_recipe(here.folder / "recipe.toml", overrides)
        source = recipe.resolve(recipe.shared.policy.model)
        return await self.do(
            lambda: join(self.client, recipe, source, lineage=lineage, say=self.said.append)
        )

    async def acknowledge(self) -> None:
        await self.do(lambda: self.client.acknowledge(0))

    async def lease(self, version: WeightVersion, wait: float = 0.05) -> int:
        found = await self.do(
            lambda: self.client.lease(after=0, count=1, version=version, wait=wait)
        )
        return len(found)

    async def publish(self, version: WeightVersion, path: Path) -> None:
        await self.do(lambda: self.client.publish(version, None, str(path)))


@asynccontextmanager
async def beside(here: World) -> AsyncIterator[tuple[Beside, Beside]]:
    """Two learners of the world's engine."""
    address = here.tables["run"]["engine"]
    async with Beside(address) as one, Beside(address) as other:
        yield one, other


async def test_the_newest_claim_wins_and_the_older_learner_ends(world: MakeWorld) -> None:
    here = await world(run=RUN)
    async with here.engine() as run, beside(here) as (old, new):
        version = await old.take(here)
        assert version == run.version
        assert old.said == []
        assert await old.lease(version, wait=20) == 1
        await old.publish(v(version, 1), here.weights("1"))
        assert await new.take(here) == v(version, 1)
        for refused in (
            old.publish(v(version, 2), here.weights("2")),
            old.lease(v(version, 1)),
            old.acknowledge(),
            old.take(here),  # a claim that comes again late takes nothing back
        ):
            with pytest.raises(TakenError, match="another learner has taken the run over"):
                await refused
        assert sampler_version(here) == str(v(version, 1))
        await new.publish(v(version, 2), here.weights("2"))
        await new.acknowledge()
        await new.take(here)  # asked twice it is one claim
        assert await run.learner.version() == v(version, 2)


async def test_a_publish_that_waits_for_an_evaluation_ends_with_its_learner_s_claim(
    world: MakeWorld,
) -> None:
    """It had its turn already: the run is another learner's before a sampler is moved."""
    here = await world(
        run=RUN,
        timing=Timing(tokens_per_second=50),
        engine=lane(suite(n=4), max_concurrent=1),
    )
    async with here.engine() as run, beside(here) as (old, new):
        version = await old.take(here)
        assert version == run.version
        publish = asyncio.create_task(old.publish(v(version, 1), here.weights("1")))
        await until(run.engine._publisher._lock.locked, "the turn of the publish")
        assert await new.take(here) == version
        with pytest.raises(TakenError, match="another learner has taken the run over"):
            await publish
        assert sampler_version(here) == str(version)
        assert await run.learner.version() == version


async def test_a_claim_outlives_the_engine(world: MakeWorld) -> None:
    here = await world(run=RUN)
    async with beside(here) as (old, new):
        async with here.engine():
            await old.take(here)
            await new.take(here)
        async with here.engine():
            with pytest.raises(TakenError):
                await old.acknowledge()
            await new.acknowledge()


async def test_of_two_that_start_at_one_instant_one_has_the_run(world: MakeWorld) -> None:
    here = await world(run=RUN)
    async with here.engine(), beside(here) as both:
        await asyncio.gather(*(one.take(here) for one in both), return_exceptions=True)
        ends = await asyncio.gather(*(one.acknowledge() for one in both), return_exceptions=True)
        assert {type(end) for end in ends} == {type(None), TakenError}


async def test_who_names_no_learner_is_refused_once_one_has_the_run(world: MakeWorld) -> None:
    """Before that nobody is: learners of an older version name none."""
    here = await world(run=RUN)
    async with here.engine() as run, beside(here) as (one, stranger):
        await run.learner.acknowledge(0)
        await stranger.acknowledge()
        await one.take(here)
        await run.learner.version()  # who only asks takes nothing
        for refused in (
            run.learner.acknowledge(0),
            run.learner.lease(run.version),
            run.learner.publish(run.at(1), here.weights("1")),
        ):
            with pytest.raises(ServiceError, match="names no learner") as caught:
                await refused
            assert caught.value.reason == reasons.ERROR_REASON_SUPERSEDED
            assert not may_retry(caught.value)
        with pytest.raises(TakenError, match="another learner"):
            await stranger.acknowledge()
        await one.acknowledge()


async def test_a_dead_learners_publishes_do_not_overtake_its_successor(world: MakeWorld) -> None:
    """The one amid the samplers is waited for; the one that waits for its turn is not made."""
    here = await world(run=RUN)
    async with here.engine() as run, beside(here) as (old, new):
        version = await old.take(here)
        assert version == run.version
        await old.lease(version, wait=20)
        loads = Loads(here.sampler)
        amid = asyncio.create_task(old.publish(v(version, 1), here.weights("1")))
        await loads.begun.wait()
        waiting = asyncio.create_task(
            run.engine._publisher.publish(
                v(version, 2), here.weights("2"), None, learner=old.client.learner
            )
        )
        taking = asyncio.create_task(new.take(here))
        await until(lambda: len(run.engine.journal.learners) == 2, "the second claim")
        assert not taking.done()
        loads.go.set()
        await amid
        assert await taking == v(version, 1)
        with pytest.raises(ServiceError, match="taken the run over"):
            await waiting
        assert len(loads.loaded) == 1
        assert sampler_version(here) == str(v(version, 1))


async def test_a_learner_of_another_recipe_is_refused_and_takes_nothing(world: MakeWorld) -> None:
    here = await world(run=RUN)
    async with here.engine("run.seed=7"), beside(here) as (one, other):
        await one.take(here, "run.seed=7")

        async def refused(*overrides: str, lineage: str = "") -> str:
            with pytest.raises(MismatchError) as caught:
                await other.take(here, *overrides, lineage=lineage)
            await one.acknowledge()  # the one that trains goes on
            return str(caught.value)

        assert "run.seed is 7 in the engine and 0 here" in await refused()
        assert "run.folder is" in await refused("run.seed=7", "run.folder=elsewhere")
        policy = here.folder / "policy"
        policy.mkdir()
        source = here.tables["policy"]["model"]
        for file in source.iterdir():
            (policy / file.name).write_bytes(file.read_bytes())
        model = ("run.seed=7", f"policy.model={policy}")
        config = (policy / "config.json").read_text(encoding="utf-8")
        (policy / "config.json").write_text(config.replace("320", "640"), encoding="utf-8")
        assert "another config.json or other tensors" in await refused(*model)
        (policy / "config.json").write_text(config, encoding="utf-8")
        (policy / "chat_template.jinja").write_text("another", encoding="utf-8")
        assert "tokenizer or chat template" in await refused(*model)
        assert "lineage stranger" in await refused("run.seed=7", lineage="stranger")
        (policy / "chat_template.jinja").write_bytes((source / "chat_template.jinja").read_bytes())
        await other.take(here, *model)  # a copy elsewhere is the same policy


def test_the_end_of_an_older_learner_is_its_own_exit_code() -> None:
    """A supervisor would else let two learners take the run from each other."""
    codes = [kind.status for kind in LearnerError.__subclasses__()]
    assert codes.count(TakenError.status) == 1
