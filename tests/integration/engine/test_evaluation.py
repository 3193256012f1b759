"""The evaluation lane: whole under one version, once a version, never leased."""

from __future__ import annotations

import asyncio

import pytest

from bench.scripted import Timing
from engine.errors import StartupError
from tests.integration.engine.conftest import MakeWorld
from tests.support.dialogue import ANSWER, CALL
from tests.support.evaluations import (
    NONE,
    Watched,
    evaluated,
    lane,
    lines,
    of_evaluation,
    rows,
    suite,
)
from tests.support.waiting import until

pytestmark = pytest.mark.quick


async def test_before_after_and_in_between(world: MakeWorld) -> None:
    here = await world(
        run={**NONE, "steps": 4},
        engine=lane(suite("often", n=2, temperature=0.5), suite("ends", n=3, when="ends"), every=2),
    )
    async with here.engine() as run:
        await evaluated(run, 2)
        for step in range(1, 5):
            assert not (await run.learner.status()).final_evaluation_done
            await run.learner.publish(run.at(step), here.weights(str(step)))
        await evaluated(run, 5)
        assert (await run.learner.status()).final_evaluation_done
        (group,) = await run.learner.lease(run.at(4), count=1)

    results = lines(run.folder)
    assert sorted((r["step"], r["suite"], r["n"]) for r in results) == [
        (0, "ends", 3), (0, "often", 2), (2, "often", 2), (4, "ends", 3), (4, "often", 2),
    ]  # fmt: skip
    assert {r["lineage"] for r in results} == {run.version.lineage}
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


async def test_a_run_of_no_steps_is_evaluated_once_and_rolls_nothing_out(world: MakeWorld) -> None:
    here = await world(
        run={**NONE, "steps": 0},
        engine=lane(*(suite(when, n=2, when=when) for when in ("every", "ends", "last")), every=2),
    )
    async with here.engine() as run:
        await evaluated(run, 3)
        assert (await run.learner.status()).final_evaluation_done
    found = {(row["suite"], row["step"], row["n"]) for row in lines(run.folder)}
    assert found == {("every", 0, 2), ("ends", 0, 2), ("last", 0, 2)}
    assert len(of_evaluation(here)) == len(here.sampler.requests) > 0


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
        assert (await run.learner.status()).state == "evaluating"
        publish = asyncio.create_task(run.learner.publish(run.at(1), here.weights("1")))
        await until(lambda: len(of_evaluation(here)) >= 4, "the evaluation's middle")
        assert not publish.done()
        under_way = (await run.learner.status()).detail
        await publish
        assert under_way["evaluation_rows"] == 6 and under_way["evaluated_rows"] < 6
        after = (await run.learner.status()).detail
        assert after["evaluation_rows"] == 0
        assert after["samplers_up"] == after["samplers"] == 1
        assert after["calls"] >= 6 and after["tokens"] > under_way["tokens"] > 0
        assert [(r["step"], r["n"]) for r in lines(run.folder)] == [(0, 6)]
        (group,) = await run.learner.lease(run.at(1), after=1)
    assert script.versions["e"] == {str(run.version)}
    assert group.members[0].weight_versions == (run.at(1),)


async def test_rollouts_rewards_and_what_is_held_are_bounded(world: MakeWorld) -> None:
    """None of them grows with the suites, and rewards are scored side by side."""
    script = Watched()
    script.here = here = await world(
        script=script,
        run={**NONE, "steps": 0},
        engine=lane(suite("a", n=30), suite("b", n=30), max_concurrent=3, samples=0),
    )
    here.rewards(
        "global now, most",
        "now += 1",
        "most = max(most, now)",
        "await asyncio.sleep(0.02)",
        "now -= 1",
        "if trajectory.index < 28:",
        "    return most",
        "gc.collect()",
        "return 10 * sum(type(one) is AttemptLog for one in gc.get_objects())",
        before="import gc\nfrom engine.core.trajectory.log import AttemptLog\nnow = most = 0",
    )
    async with here.engine() as run:
        await evaluated(run, 2)
    rewards = [row["reward"] for name in "ab" for row in rows(run.folder, name)]
    assert max(reward for reward in rewards if reward < 10) == 3
    assert max(rewards) <= 30
    assert script.most <= 3
    assert script.versions["g"] == set()


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


async def test_a_suite_longer_than_its_source_is_refused_at_the_start(world: MakeWorld) -> None:
    here = await world(run=NONE, engine=lane(suite(n=4, source="task.py:short")))
    with pytest.raises(StartupError, match="has 3 tasks, 4 are"):
        async with here.engine():
            pass


async def test_each_row_has_its_line(world: MakeWorld) -> None:
    here = await world(run={**NONE, "steps": 0}, engine=lane(suite(n=3)))
    async with here.engine() as run:
        await evaluated(run, 1)
    found = rows(run.folder)
    assert [row["index"] for row in found] == [0, 1, 2]
    assert [row["task_id"] for row in found] == ["t0", "t1", "t2"]
    for row in found:
        assert row["segments"][1] == {"author": "model", "text": CALL}
        assert row["answers"]
        assert (row["suite"], row["version"], row["versions"]) == (
            "heldout", str(run.version), [str(run.version)],
        )  # fmt: skip
        assert (row["reward"], row["parts"], row["stop_reason"], row["calls"], row["errored"]) == (
            1.0, {"correct": 1.0}, "answered", 1, "",
        )  # fmt: skip
    (result,) = lines(run.folder)
    assert (result["asked"], result["errored"], result["bad_rows"]) == (3, 0, 0)
    assert (result["stops"], result["parts"]) == ({"answered": 3}, {"correct": 1.0})


async def test_a_suite_and_a_task_have_sampling_and_limits_of_their_own(world: MakeWorld) -> None:
    own = {"top_p": 0.9, "top_k": 7, "min_p": 0.1, "repetition_penalty": 1.1, "temperature": 0.3}
    here = await world(
        run={**NONE, "steps": 0},
        sampler={"top_p": 0.5},
        engine=lane(
            suite("own", n=2, sampling_seed=5, max_new_tokens=40, limits={"turns": 0}, **own),
            suite("plain", n=1),
            suite("task", n=1, source="own.py:tasks", temperature=0.2),
        ),
    )
    (here.folder / "own.py").write_text(
        "from toolwright.types import SamplingParams, Task\n"
        "def tasks(seed):\n"
        "    yield Task(id='a', prompt='what?', sampling=SamplingParams(top_k=3))\n",
        encoding="utf-8",
    )
    async with here.engine() as run:
        await evaluated(run, 3)
    asked = {str(s.body["routing_key"]).partition("/")[0]: s.body for s in of_evaluation(here)}
    by_row = {name.partition(".0.")[2]: body["sampling_params"] for name, body in asked.items()}
    assert {key: by_row["own-0"][key] for key in own} == own
    assert [by_row[f"own-{row}"]["sampling_seed"] for row in (0, 1)] == [5, 6]
    assert by_row["own-0"]["max_new_tokens"] == 40
    assert (by_row["plain-0"]["top_p"], by_row["plain-0"].get("sampling_seed")) == (0.5, None)
    stops = {result["suite"]: result["stops"] for result in lines(run.folder)}
    assert stops.pop("task")
    assert stops == {"own": {"max_turns": 2}, "plain": {"answered": 1}}
    params = by_row["task-0"]
    assert (params["top_k"], params["temperature"]) == (3, 0.2)


async def test_a_publish_does_not_wait_for_rewards(world: MakeWorld) -> None:
    here = await world(run={**NONE, "steps": 3}, engine=lane(suite(n=2)))
    here.rewards(
        "while not pathlib.Path(__file__).with_name('go').exists():",
        "    await asyncio.sleep(0.01)",
        "return 1.0",
        before="import pathlib",
    )
    async with here.engine() as run:
        await run.learner.publish(run.at(1), here.weights("1"))
        assert lines(run.folder) == []
        (here.folder / "go").touch()
        await evaluated(run, 1)
    assert [(r["step"], r["n"]) for r in lines(run.folder)] == [(0, 2)]
    assert {one for row in rows(run.folder) for one in row["versions"]} == {str(run.version)}


async def test_a_publish_waits_so_long_and_no_row_is_cut(world: MakeWorld) -> None:
    script = Watched()
    script.here = here = await world(
        script=script,
        run={**NONE, "steps": 3},
        timing=Timing(tokens_per_second=100),
        engine=lane(suite(n=40), max_concurrent=2, publish_waits_s=0.3),
    )
    async with here.engine() as run:
        await run.learner.publish(run.at(1), here.weights("1"))
        await evaluated(run, 1)
    (result,) = lines(run.folder)
    assert result["asked"] == 40
    assert 2 <= result["n"] < 30
    assert [row["index"] for row in rows(run.folder)] == list(range(result["n"]))
    assert script.versions["e"] == {str(run.version)}
