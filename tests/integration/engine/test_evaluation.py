"""The evaluation lane: whole under one version, once a version, never leased."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from bench.scripted import ScriptRequest, Timing
from engine import lines as files
from engine.lanes.evaluation import suite as suites
from tests.integration.engine.conftest import MakeWorld, World
from tests.support.dialogue import ANSWER, CALL
from tests.support.engines import Running
from tests.support.recipes import write_recipe
from tests.support.tools import ToolDouble, serving
from tests.support.waiting import until
from toolwright.common.v1 import reasons_pb2 as reasons
from toolwright.rpc.errors import ServiceError
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


def rows(folder: Path, name: str = "heldout", step: int = 0) -> list[dict[str, Any]]:
    """Lines of one evaluation, by row."""
    (file,) = (folder / "evaluations").glob(f"{name}@*.{step}.jsonl")
    found = [json.loads(line) for line in file.read_text().splitlines()]
    return sorted(found, key=lambda row: int(row["index"]))


def cut(file: Path, keep: int) -> None:
    """What a kill in the middle of line `keep` leaves."""
    whole = file.read_text().splitlines(keepends=True)
    file.write_text("".join(whole[:keep]) + whole[keep][:20])


async def test_what_was_evaluated_is_not_evaluated_again(world: MakeWorld) -> None:
    here = await world(run={**NONE, "steps": 0}, engine=lane(suite("a"), suite("b")))
    async with here.engine() as run:
        await evaluated(run, 2)
    asked = len(here.sampler.requests)
    # A life that ended between the two suites' lines has only the second line to write.
    cut(run.folder / "evaluations.jsonl", 1)
    async with here.engine() as run:
        await evaluated(run, 2)
    first, second = lines(run.folder)
    assert {first.pop("suite"), second.pop("suite")} == {"a", "b"}
    assert {**first, "seconds": 0} == {**second, "seconds": 0}
    assert len(here.sampler.requests) == asked


async def test_rows_that_a_kill_left_are_not_run_again(world: MakeWorld) -> None:
    here = await world(run={**NONE, "steps": 0}, engine=lane(suite(n=6)))
    async with here.engine() as run:
        await evaluated(run, 1)
    before, asked = rows(run.folder), len(here.sampler.requests)
    (file,) = (run.folder / "evaluations").iterdir()
    cut(file, 4)
    (run.folder / "evaluations.jsonl").unlink()
    async with here.engine() as run:
        await evaluated(run, 1)
    assert len(here.sampler.requests) == asked + 2 * 2  # the two rows whose lines were not whole
    assert rows(run.folder) == before
    (result,) = lines(run.folder)
    assert (result["n"], result["reward"], result["calls"]) == (6, 1.0, 1.0)


async def test_killed_for_real_it_runs_only_the_rows_in_flight_again(world: MakeWorld) -> None:
    here = await world(
        run={**NONE, "steps": 0},
        timing=Timing(tokens_per_second=200),
        engine=lane(suite(n=16), max_concurrent=2),
    )
    file = write_recipe(here.folder, here.tables)
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "engine.cli", "serve", str(file)
    )
    written = here.folder / "run" / "evaluations"
    await until(
        lambda: any(one.read_text().count("\n") >= 4 for one in written.glob("*.jsonl")), "rows"
    )
    process.kill()
    await process.wait()
    done = {f"-{row['index']}" for row in rows(here.folder / "run")}
    assert 4 <= len(done) < 16
    seen = len(here.sampler.requests)
    async with here.engine() as run:
        await evaluated(run, 1)
    again = [str(s.body["routing_key"]).partition("/")[0] for s in here.sampler.requests[seen:]]
    assert not {name[name.rindex("-") :] for name in again} & done
    (result,) = lines(run.folder)
    assert (result["n"], result["errored"], result["reward"]) == (16, 0, 1.0)
    assert [row["index"] for row in rows(run.folder)] == list(range(16))


async def test_rows_that_were_measured_in_another_way_do_not_count(world: MakeWorld) -> None:
    here = await world(run={**NONE, "steps": 0}, engine=lane(suite()))
    async with here.engine() as run:
        await evaluated(run, 1)
    asked = len(here.sampler.requests)
    (run.folder / "evaluations.jsonl").unlink()
    async with here.engine(engine=lane(suite(temperature=0.5))) as run:
        await evaluated(run, 1)
    assert len(here.sampler.requests) == 2 * asked


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
    assert not [name for name in here.tools.live if "/e" in name]
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
    monkeypatch.setattr(files, "FULL_SECONDS", 0.05)
    here = await world(run={**NONE, "steps": 1}, engine=lane(suite(n=2)))
    async with here.engine() as run:
        version = await run.learner.version()
        await evaluated(run, 1)
        results, kept = run.folder / "evaluations.jsonl", run.folder / "kept.jsonl"
        results.rename(kept)
        results.symlink_to("/dev/full")
        await run.learner.publish(v(version, 1), here.weights("1"))
        await until(lambda: run.engine.status.state == "full", "the engine to see it")
        results.unlink()
        kept.rename(results)
        await evaluated(run, 2)
        assert (await run.learner.status()).state == "running"
    assert [(r["step"], r["n"]) for r in lines(run.folder)] == [(0, 2), (1, 2)]
    assert len(lines(run.folder, "samples")) == 4


async def test_each_row_has_its_line(world: MakeWorld) -> None:
    here = await world(run={**NONE, "steps": 0}, engine=lane(suite(n=3)))
    async with here.engine() as run:
        version = await run.learner.version()
        await evaluated(run, 1)
    found = rows(run.folder)
    assert [row["index"] for row in found] == [0, 1, 2]
    assert [row["task_id"] for row in found] == ["t0", "t1", "t2"]
    for row in found:
        assert (row["suite"], row["version"], row["versions"]) == (
            "heldout", str(version), [str(version)],
        )  # fmt: skip
        assert (row["reward"], row["parts"], row["stop_reason"], row["calls"], row["errored"]) == (
            1.0, {"correct": 1.0}, "answered", 1, "",
        )  # fmt: skip
    (result,) = lines(run.folder)
    assert (result["asked"], result["errored"], result["bad_rows"]) == (3, 0, 0)
    assert (result["stops"], result["parts"]) == ({"answered": 3}, {"correct": 1.0})


async def test_a_suite_has_sampling_and_limits_of_its_own(world: MakeWorld) -> None:
    own = {"top_p": 0.9, "top_k": 7, "min_p": 0.1, "repetition_penalty": 1.1, "temperature": 0.3}
    here = await world(
        run={**NONE, "steps": 0},
        sampler={"top_p": 0.5},
        engine=lane(
            suite("own", n=2, sampling_seed=5, max_new_tokens=40, limits={"turns": 0}, **own),
            suite("plain", n=1),
        ),
    )
    async with here.engine() as run:
        await evaluated(run, 2)
    asked = {str(s.body["routing_key"]).partition("/")[0]: s.body for s in of_evaluation(here)}
    by_row = {name.partition(".0.")[2]: body["sampling_params"] for name, body in asked.items()}
    assert {key: by_row["own-0"][key] for key in own} == own
    assert [by_row[f"own-{row}"]["sampling_seed"] for row in (0, 1)] == [5, 6]
    assert by_row["own-0"]["max_new_tokens"] == 40
    assert (by_row["plain-0"]["top_p"], by_row["plain-0"].get("sampling_seed")) == (0.5, None)
    stops = {result["suite"]: result["stops"] for result in lines(run.folder)}
    assert stops == {"own": {"max_turns": 2}, "plain": {"answered": 1}}


async def test_a_tasks_own_sampling_is_honoured(world: MakeWorld) -> None:
    here = await world(
        run={**NONE, "steps": 0}, engine=lane(suite(n=1, source="own.py:tasks", temperature=0.2))
    )
    (here.folder / "own.py").write_text(
        "from toolwright.types import SamplingParams, Task\n"
        "def tasks(seed):\n"
        "    yield Task(id='a', prompt='what?', sampling=SamplingParams(top_k=3))\n"
    )
    async with here.engine() as run:
        await evaluated(run, 1)
    params = of_evaluation(here)[0].body["sampling_params"]
    assert (params["top_k"], params["temperature"]) == (3, 0.2)


def lost() -> ServiceError:
    return ServiceError(reasons.ERROR_REASON_SESSION_LOST, "gone")


async def test_what_infrastructure_failed_is_run_again(
    world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(suites, "PASS_PAUSE_S", 0.01)
    here = await world(
        tools=ToolDouble(faults=[lost() for _ in range(3)]),  # all attempts at the first row
        run={**NONE, "steps": 0},
        engine={"patience_s": 0, **lane(suite(n=2), max_concurrent=1)},
    )
    async with here.engine() as run:
        await evaluated(run, 1)
    (result,) = lines(run.folder)
    assert (result["n"], result["reward"], result["errored"]) == (2, 1.0, 0)
    first, again, second = rows(run.folder)
    assert (first["index"], again["index"], second["index"]) == (0, 0, 1)
    assert first["errored"] and not again["errored"]


async def test_what_infrastructure_failed_to_the_end_is_no_wrong_answer(
    world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(suites, "PASS_PAUSE_S", 0.01)
    monkeypatch.setattr(suites, "PASSES", 2)

    class Picky(ToolDouble):
        async def CallTool(self, request: Any, context: Any) -> Any:
            if "-1/" in request.session_id:
                self.faults.append(lost())
            return await super().CallTool(request, context)

    here = await world(
        tools=Picky(),
        run={**NONE, "steps": 0},
        engine={"patience_s": 0, **lane(suite(n=3))},
    )
    async with here.engine() as run:
        await evaluated(run, 1)
        assert (await run.learner.status()).final_evaluation_done
    (result,) = lines(run.folder)
    assert (result["n"], result["asked"], result["reward"], result["errored"]) == (2, 3, 1.0, 1)
    assert [row["index"] for row in rows(run.folder) if row["errored"]] == [1, 1]


async def test_an_outage_of_a_tool_service_is_no_wrong_answer(world: MakeWorld) -> None:
    """Nor a time-out, though it lasts twice as long as a trajectory may."""
    here = await world(
        run={**NONE, "steps": 0},
        timing=Timing(tokens_per_second=200),
        task={"limits": {"seconds": 1.0}},
        engine=lane(suite(n=8), max_concurrent=2),
    )
    async with here.engine() as run:
        await until(lambda: len(here.tools.ran) >= 2, "calls")
        _, _, port = here.tools.address.rpartition(":")
        await here.tools.stop()
        await asyncio.sleep(2.0)
        assert lines(run.folder) == []
        async with serving(here.tools, int(port)):
            await evaluated(run, 1)
    (result,) = lines(run.folder)
    assert (result["n"], result["errored"], result["reward"]) == (8, 0, 1.0)
    assert result["stops"] == {"answered": 8}


async def test_an_evaluation_without_a_measured_row_is_not_recorded(
    world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The engine's next start at this version tries again."""
    monkeypatch.setattr(suites, "SCORE_PAUSES", (0.01,))
    here = await world(run={**NONE, "steps": 0}, engine=lane(suite(n=2)))
    (here.folder / "my_reward.py").write_text("def score(trajectory): raise OSError('away')\n")
    async with here.engine() as run:
        await until(
            lambda: run.engine.status.message().final_evaluation_done, "the evaluation's end"
        )
    assert lines(run.folder) == []
    assert all("OSError('away')" in row["errored"] for row in rows(run.folder))


async def test_a_reward_that_failed_once_is_asked_again(
    world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(suites, "SCORE_PAUSES", (0.01,))
    here = await world(run={**NONE, "steps": 0}, engine=lane(suite(n=2)))
    (here.folder / "my_reward.py").write_text(
        "seen = set()\n"
        "async def score(trajectory):\n"
        "    if trajectory.id not in seen:\n"
        "        seen.add(trajectory.id)\n"
        "        raise OSError('away')\n"
        "    return 0.5\n"
    )
    async with here.engine() as run:
        await evaluated(run, 1)
    (result,) = lines(run.folder)
    assert (result["n"], result["reward"], result["errored"]) == (2, 0.5, 0)


async def test_rewards_are_scored_side_by_side_and_bounded(world: MakeWorld) -> None:
    here = await world(
        run={**NONE, "steps": 0}, engine=lane(suite(n=9), max_concurrent=3, samples=0)
    )
    (here.folder / "my_reward.py").write_text(
        "import asyncio\n"
        "now = most = 0\n"
        "async def score(trajectory):\n"
        "    global now, most\n"
        "    now += 1\n"
        "    most = max(most, now)\n"
        "    await asyncio.sleep(0.05)\n"
        "    now -= 1\n"
        "    return most\n"
    )
    async with here.engine() as run:
        await evaluated(run, 1)
    assert max(row["reward"] for row in rows(run.folder)) == 3.0


async def test_bad_rows_of_a_suite_are_counted_and_keep_their_places(world: MakeWorld) -> None:
    here = await world(run={**NONE, "steps": 0}, engine=lane(suite(n=4, source="some.jsonl")))
    (here.folder / "some.jsonl").write_text(
        '{"id": "a", "prompt": "1?"}\n{"id": "b"}\nnot JSON\n{"id": "d", "prompt": "4?"}\n'
    )
    async with here.engine() as run:
        await evaluated(run, 1)
    (result,) = lines(run.folder)
    assert (result["n"], result["asked"], result["bad_rows"], result["errored"]) == (2, 4, 2, 0)
    assert [row["index"] for row in rows(run.folder) if row.get("bad")] == [1, 2]


async def test_a_publish_does_not_wait_for_rewards(world: MakeWorld) -> None:
    here = await world(run={**NONE, "steps": 3}, engine=lane(suite(n=2)))
    (here.folder / "my_reward.py").write_text(
        "import asyncio, pathlib\n"
        "async def score(trajectory):\n"
        "    while not pathlib.Path(__file__).with_name('go').exists():\n"
        "        await asyncio.sleep(0.01)\n"
        "    return 1.0\n"
    )
    async with here.engine() as run:
        version = await run.learner.version()
        await run.learner.publish(v(version, 1), here.weights("1"))
        assert lines(run.folder) == []
        (here.folder / "go").touch()
        await evaluated(run, 1)
    assert [(r["step"], r["n"]) for r in lines(run.folder)] == [(0, 2)]
    assert {one for row in rows(run.folder) for one in row["versions"]} == {str(version)}


async def test_a_publish_waits_so_long_and_no_row_is_cut(world: MakeWorld) -> None:
    script = Watched()
    script.here = here = await world(
        script=script,
        run={**NONE, "steps": 3},
        timing=Timing(tokens_per_second=100),
        engine=lane(suite(n=40), max_concurrent=2, publish_waits_s=0.3),
    )
    async with here.engine() as run:
        version = await run.learner.version()
        await run.learner.publish(v(version, 1), here.weights("1"))
        await evaluated(run, 1)
    (result,) = lines(run.folder)
    assert result["asked"] == 40
    assert 2 <= result["n"] < 30
    assert [row["index"] for row in rows(run.folder)] == list(range(result["n"]))
    assert script.versions["e"] == {str(version)}


async def test_a_row_that_other_weights_wrote_in_is_run_again(world: MakeWorld) -> None:
    """The sampler came back with weights that it had before, and nobody noticed yet."""
    attempts: list[str] = []

    def script(request: ScriptRequest) -> Sequence[int]:
        scheduler = here.sampler.scheduler
        lineage, _, _ = scheduler.weight_version.rpartition(".")
        new = request.conversation not in attempts
        if request.conversation.startswith(f"e{lineage}.1.") and new:
            attempts.append(request.conversation)
            scheduler.rename_weights(f"{lineage}.{0 if len(attempts) == 1 else 1}")
        said = here.codec.decode(request.input_ids)
        return here.codec.encode(ANSWER if "</result>" in said else CALL)

    here = await world(
        script=script,
        timing=Timing(tokens_per_second=100),
        run={**NONE, "steps": 3},
        engine=lane(suite(n=1), every=1),
    )
    async with here.engine() as run:
        version = await run.learner.version()
        await evaluated(run, 1)
        await run.learner.publish(v(version, 1), here.weights("1"))
        await evaluated(run, 2)
    assert len(attempts) == 2
    (row,) = rows(run.folder, step=1)
    assert row["versions"] == [str(v(version, 1))]


async def test_what_is_held_does_not_grow_with_the_suite(world: MakeWorld) -> None:
    here = await world(
        run={**NONE, "steps": 0}, engine=lane(suite(n=60), max_concurrent=3, samples=0)
    )
    (here.folder / "my_reward.py").write_text(
        "import gc\n"
        "from engine.rollout.log import AttemptLog\n"
        "async def score(trajectory):\n"
        "    if trajectory.index < 58:\n"
        "        return 0\n"
        "    gc.collect()\n"
        "    return sum(type(one) is AttemptLog for one in gc.get_objects())\n"
    )
    async with here.engine() as run:
        await evaluated(run, 1)
    assert 1 <= max(row["reward"] for row in rows(run.folder)) <= 3
