"""The evaluation lane: whole under one version, once a version, never leased."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from bench.scripted import ScriptRequest, Timing
from engine.lanes import evaluation
from tests.integration.engine.conftest import MakeWorld, World
from tests.support.dialogue import ANSWER, CALL
from tests.support.engines import Running, until
from toolwright.types import WeightVersion

NONE = {"steps": 2, "groups_per_step": 1, "group_size": 1}


def suite(name: str = "heldout", n: int = 4, **fields: Any) -> dict[str, Any]:
    return {"name": name, "source": "task.py:training", "n": n, **fields}


def lane(*suites: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"evaluation": {"suites": list(suites), **fields}}


def lines(folder: Path, name: str = "evaluations") -> list[dict[str, Any]]:
    file = folder / f"{name}.jsonl"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def v(version: WeightVersion, step: int) -> WeightVersion:
    return WeightVersion(lineage=version.lineage, step=step)


async def evaluated(run: Running, count: int) -> None:
    await until(lambda: len(lines(run.folder)) == count, f"{count} evaluations")


def of_evaluation(here: World) -> list[Any]:
    return [s for s in here.sampler.requests if str(s.body["routing_key"]).startswith("e")]


async def test_before_after_and_in_between(world: MakeWorld) -> None:
    here = await world(
        run={**NONE, "steps": 4},
        engine=lane(suite("often", n=2, temperature=0.5), suite("ends", n=3, when="ends"), every=2),
    )
    async with here.engine() as run:
        version = await run.learner.version()
        await evaluated(run, 2)
        for step in range(1, 5):
            assert not (await run.learner.status()).final_evaluation_done
            await run.learner.publish(v(version, step), here.weights(str(step)))
        await evaluated(run, 5)
        assert (await run.learner.status()).final_evaluation_done
        (group,) = await run.learner.lease(v(version, 4), count=1)

    results = lines(run.folder)
    assert sorted((r["step"], r["suite"], r["n"]) for r in results) == [
        (0, "ends", 3), (0, "often", 2), (2, "often", 2), (4, "ends", 3), (4, "often", 2),
    ]  # fmt: skip
    assert {r["lineage"] for r in results} == {version.lineage}
    assert {(r["reward"], r["stderr"], r["masked"], r["calls"]) for r in results} == {
        (1.0, 0.0, 0, 1.0)
    }
    assert {r["temperature"] for r in results} == {0.5, 0.0}
    asked = {
        ("ends" in str(s.body["routing_key"]), s.body["sampling_params"]["temperature"])
        for s in of_evaluation(here)
    }
    assert asked == {(True, 0.0), (False, 0.5)}
    assert group.members[0].task.purpose.name == "TRAIN"
    samples = lines(run.folder, "samples")
    assert len(samples) == 12  # three a suite, where it has as many
    assert samples[0]["segments"][1] == {"author": "model", "text": CALL}
    assert not here.tools.live


async def test_it_is_never_leased_and_takes_no_place(world: MakeWorld) -> None:
    """Nothing of it counts in the capacity formula: the batch is there beside it."""
    here = await world(run={**NONE, "groups_per_step": 3}, engine=lane(suite(n=20)))
    async with here.engine() as run:
        version = await run.learner.version()
        await evaluated(run, 1)
        groups = await run.learner.lease(version, count=99, wait=0.3)
        status = await run.learner.status()
    assert len(groups) == 3
    assert {g.info.id[0] for g in groups} == {"g"}
    assert (status.accepted, status.running, status.last_sequence) == (3, 0, 3)


class Watched:
    """A script that notes, at every request, what the sampler is doing."""

    def __init__(self) -> None:
        self.here: World
        self.most = 0
        self.versions: dict[str, set[str]] = {"e": set(), "g": set()}

    def __call__(self, request: ScriptRequest) -> Sequence[int]:
        scheduler, codec = self.here.sampler.scheduler, self.here.codec
        self.most = max(self.most, scheduler.running)
        self.versions[request.conversation[0]].add(scheduler.weight_version)
        said = codec.decode(request.input_ids)
        return codec.encode(ANSWER if "</result>" in said else CALL)


async def test_a_publish_waits_for_it(world: MakeWorld) -> None:
    """It runs whole under one version, however early the next one comes."""
    script = Watched()
    script.here = here = await world(
        script=script,
        run={**NONE, "steps": 3},
        timing=Timing(tokens_per_second=100),
        engine=lane(suite(n=6), max_concurrent=2),
    )
    async with here.engine() as run:
        version = await run.learner.version()
        assert (await run.learner.status()).state == "evaluating"
        publish = asyncio.create_task(run.learner.publish(v(version, 1), here.weights("1")))
        await until(lambda: len(of_evaluation(here)) >= 4, "the evaluation's middle")
        assert not publish.done()
        await publish
        assert [(r["step"], r["n"]) for r in lines(run.folder)] == [(0, 6)]
        (group,) = await run.learner.lease(v(version, 1), after=1)
    assert script.versions["e"] == {str(version)}
    assert group.members[0].weight_versions == (v(version, 1),)


async def test_at_most_so_many_at_a_time(world: MakeWorld) -> None:
    script = Watched()
    script.here = here = await world(
        script=script,
        timing=Timing(tokens_per_second=500),
        run={**NONE, "steps": 0},
        engine=lane(suite("a", n=6), suite("b", n=6), max_concurrent=3),
    )
    async with here.engine() as run:
        await evaluated(run, 2)
    assert script.most <= 3
    assert script.versions["g"] == set()


async def test_what_was_evaluated_is_not_evaluated_again(world: MakeWorld) -> None:
    here = await world(run={**NONE, "steps": 0}, engine=lane(suite("a"), suite("b")))
    async with here.engine() as run:
        await evaluated(run, 2)
    asked = len(here.sampler.requests)
    # A life that ended between the two suites does the second one only.
    file = run.folder / "evaluations.jsonl"
    whole, second = file.read_text().splitlines(keepends=True)
    file.write_text(whole + second[:20])  # killed in the middle of the line
    async with here.engine() as run:
        await evaluated(run, 2)
    assert {r["suite"] for r in lines(run.folder)} == {"a", "b"}
    assert len(here.sampler.requests) == asked + asked // 2


async def test_an_evaluation_that_a_drain_cut_is_done_again(world: MakeWorld) -> None:
    here = await world(
        run={**NONE, "steps": 3},
        timing=Timing(tokens_per_second=20),
        engine=lane(suite(n=3)),
    )
    async with here.engine("engine.drain_s=0.1") as run:
        version = await run.learner.version()
        publish = asyncio.create_task(run.learner.publish(v(version, 1), here.weights("1")))
        await until(lambda: len(of_evaluation(here)) == 3, "the evaluation")
        await asyncio.sleep(0.1)
        await run.drain()
        with pytest.raises(Exception, match="shutting down"):
            await publish
    assert lines(run.folder) == []
    assert not here.tools.live
    here.sampler.scheduler._timing = Timing()
    async with here.engine() as run:
        assert await run.learner.version() == version
        await evaluated(run, 1)
        await run.learner.publish(v(version, 1), here.weights("1"))
    assert [(r["step"], r["n"]) for r in lines(run.folder)] == [(0, 3)]


async def test_withheld_observations(world: MakeWorld) -> None:
    """The tool runs, its answer comes back empty, frame and all."""
    here = await world(
        run={**NONE, "steps": 0}, engine=lane(suite("withheld", withhold_observations=True))
    )
    async with here.engine() as run:
        await evaluated(run, 1)
    assert len(here.tools.ran) == 4
    for sample in lines(run.folder, "samples"):
        texts = [s["text"] for s in sample["segments"]]
        assert texts[1:] == [CALL, "<result> </result>", ANSWER]


async def test_a_failed_evaluation_ends_the_engine(world: MakeWorld) -> None:
    """A learner must not wait for a result that never comes."""
    here = await world(
        run={**NONE, "steps": 0}, task={"reward": "./my_reward.py:score"}, engine=lane(suite())
    )
    (here.folder / "broken.py").write_text(
        "from engine.protocols.tagged import Tagged\n"
        "class Broken(Tagged):\n"
        "    def prompt(self, task, tools, codec):\n"
        "        if tools and task.purpose.name == 'EVAL': raise KeyError('broken')\n"
        "        return super().prompt(task, tools, codec)\n"
    )
    engine = here.engine(task={"protocol": "./broken.py:Broken"})
    with pytest.raises(BaseExceptionGroup) as caught:
        async with engine as run:
            async with asyncio.timeout(10):
                await run.task
    assert caught.group_contains(KeyError, match="broken")
    assert not here.tools.live


async def test_a_suite_that_is_longer_than_its_source_is_refused_at_the_start(
    world: MakeWorld,
) -> None:
    from engine.errors import StartupError

    here = await world(run=NONE, engine=lane(suite(n=4, source="task.py:short")))
    with pytest.raises(StartupError, match="has 3 tasks, 4 are asked"):
        async with here.engine():
            pass


async def test_on_a_full_disk_it_waits_with_its_results(
    world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evaluation, "FULL_SECONDS", 0.05)
    here = await world(run={**NONE, "steps": 1}, engine=lane(suite(n=2)))
    async with here.engine() as run:
        version = await run.learner.version()
        await evaluated(run, 1)
        results, kept = run.folder / "evaluations.jsonl", run.folder / "kept.jsonl"
        results.rename(kept)
        results.symlink_to("/dev/full")
        await run.learner.publish(v(version, 1), here.weights("1"))
        await until(lambda: run.engine._state() == "full", "the engine to see it")
        results.unlink()
        kept.rename(results)
        await evaluated(run, 2)
        assert (await run.learner.status()).state == "running"
    assert [(r["step"], r["n"]) for r in lines(run.folder)] == [(0, 2), (1, 2)]
    assert len(lines(run.folder, "samples")) == 4
