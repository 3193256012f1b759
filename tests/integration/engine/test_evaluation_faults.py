"""Faults around an evaluation, and what cuts it: none is counted as a wrong answer, what is
measured stays measured, and the rest is run again."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any

import pytest

from bench.scripted import ScriptRequest, Timing
from engine.serving import json_lines as files
from engine.serving.crew import in_process
from engine.serving.evaluation import suite as suites
from tests.integration.engine.conftest import MakeWorld
from tests.support.dialogue import ANSWER, CALL
from tests.support.engines import killed_when
from tests.support.evaluations import (
    NONE,
    cut,
    evaluated,
    lane,
    lines,
    lost,
    of_evaluation,
    rows,
    suite,
    v,
)
from tests.support.recipes import write_recipe
from tests.support.tools import ToolDouble, serving
from tests.support.waiting import holds_for, passes, until
from toolwright.types import WeightVersion

pytestmark = pytest.mark.quick


async def test_a_failure_ends_the_engine(world: MakeWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """A learner must not wait for a result that never comes."""
    here = await world(
        run={**NONE, "steps": 0}, task={"reward": "./my_reward.py:score"}, engine=lane(suite())
    )

    def broken(*_: object, **__: object) -> dict[str, object]:
        raise KeyError("broken")

    monkeypatch.setattr(suites, "row_of", broken)
    with pytest.raises(BaseExceptionGroup) as caught:
        async with here.engine() as run:
            async with asyncio.timeout(10):
                await run.task
    assert caught.group_contains(KeyError, match="broken")
    assert not here.tools.live


async def test_a_full_disk_is_waited_out(world: MakeWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "FULL_SECONDS", 0.05)
    here = await world(run={**NONE, "steps": 1}, engine=lane(suite(n=2)))
    async with here.engine() as run:
        await evaluated(run, 1)
        results, kept = run.folder / "evaluations.jsonl", run.folder / "kept.jsonl"
        results.rename(kept)
        results.symlink_to("/dev/full")
        await run.learner.publish(run.at(1), here.weights("1"))
        await until(lambda: run.engine.status.state == "full", "the engine to see it")
        results.unlink()
        kept.rename(results)
        await evaluated(run, 2)
        assert (await run.learner.status()).state == "running"
    assert [(r["step"], r["n"]) for r in lines(run.folder)] == [(0, 2), (1, 2)]
    assert len(lines(run.folder, "samples")) == 4


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
        await holds_for(2.0, lambda: lines(run.folder) == [], "no row while the service is away")
        async with serving(here.tools, int(port)):
            await evaluated(run, 1)
    (result,) = lines(run.folder)
    assert (result["n"], result["errored"], result["reward"]) == (8, 0, 1.0)
    assert result["stops"] == {"answered": 8}


@pytest.mark.parametrize("passes_by", [False, True])
async def test_a_reward_that_fails_is_asked_again(
    world: MakeWorld, monkeypatch: pytest.MonkeyPatch, passes_by: bool
) -> None:
    """An evaluation without a measured row is not recorded: the next start at this version tries
    again."""
    monkeypatch.setattr(in_process, "SCORE_PAUSES", (0.01,))
    here = await world(run={**NONE, "steps": 0}, engine=lane(suite(n=2)))
    here.rewards(
        f"if trajectory.id not in seen or not {passes_by}:",
        "    seen.add(trajectory.id)",
        "    raise OSError('away')",
        "return 0.5",
        before="seen = set()",
    )
    async with here.engine() as run:
        await until(
            lambda: run.engine.status.message().final_evaluation_done, "the evaluation's end"
        )
    if passes_by:
        (result,) = lines(run.folder)
        assert (result["n"], result["reward"], result["errored"]) == (2, 0.5, 0)
    else:
        assert lines(run.folder) == []
        assert all("OSError('away')" in row["errored"] for row in rows(run.folder))


async def test_bad_rows_of_a_suite_are_counted_and_keep_their_places(world: MakeWorld) -> None:
    here = await world(run={**NONE, "steps": 0}, engine=lane(suite(n=4, source="some.jsonl")))
    (here.folder / "some.jsonl").write_text(
        '{"id": "a", "prompt": "1?"}\n{"id": "b"}\nnot JSON\n{"id": "d", "prompt": "4?"}\n',
        encoding="utf-8",
    )
    async with here.engine() as run:
        await evaluated(run, 1)
    (result,) = lines(run.folder)
    assert (result["n"], result["asked"], result["bad_rows"], result["errored"]) == (2, 4, 2, 0)
    assert [row["index"] for row in rows(run.folder) if row.get("bad")] == [1, 2]


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


async def test_killed_for_real_it_runs_only_the_rows_in_flight_again(world: MakeWorld) -> None:
    here = await world(
        run={**NONE, "steps": 0},
        timing=Timing(tokens_per_second=200),
        engine=lane(suite(n=16), max_concurrent=2),
    )
    file = write_recipe(here.folder, here.tables)
    written = here.folder / "run" / "evaluations"

    def some() -> bool:
        texts = (one.read_text(encoding="utf-8") for one in written.glob("*.jsonl"))
        return any(text.count("\n") >= 4 for text in texts)

    await killed_when(some, "rows", "serve", file)
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


async def test_a_row_that_has_two_lines_counts_once(world: MakeWorld) -> None:
    """A copy of the file, or two engines by mistake: the first measured line counts."""
    here = await world(run={**NONE, "steps": 0}, engine=lane(suite(n=3)))
    async with here.engine() as run:
        await evaluated(run, 1)
    asked = len(here.sampler.requests)
    (file,) = (run.folder / "evaluations").iterdir()
    file.write_text(2 * file.read_text(encoding="utf-8"), encoding="utf-8")
    (run.folder / "evaluations.jsonl").unlink()
    async with here.engine() as run:
        await evaluated(run, 1)
    assert len(here.sampler.requests) == asked
    (result,) = lines(run.folder)
    assert (result["n"], result["reward"], result["calls"]) == (3, 1.0, 1.0)


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
        await passes(0.1, "the evaluation's first turns are under way")
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


@pytest.mark.parametrize("fork", [False, True])
async def test_weights_that_came_back_write_in_no_row(world: MakeWorld, fork: bool) -> None:
    """The sampler came back with weights that it had before, unnoticed: its tokens are refused.
    fork: weights of the same step, in the lineage that was left."""
    attempts: list[str] = []
    weights: list[WeightVersion] = []

    def script(request: ScriptRequest) -> Sequence[int]:
        new = request.conversation not in attempts
        if weights and request.conversation.startswith(f"e{weights[1]}.") and new:
            attempts.append(request.conversation)
            here.sampler.scheduler.rename_weights(str(weights[len(attempts) > 1]))
        said = here.codec.decode(request.input_ids)
        return here.codec.encode(ANSWER if "</result>" in said else CALL)

    here = await world(
        script=script,
        timing=Timing(tokens_per_second=100),
        run={**NONE, "steps": 3},
        engine=lane(suite(n=1), every=1),
    )
    async with here.engine() as run:
        version = before = await run.learner.version()
        await evaluated(run, 1)
        if fork:
            before = v(version, 1)
            await run.learner.publish(before, here.weights("1"))
            await evaluated(run, 2)
        newest = WeightVersion(lineage="fork" if fork else version.lineage, step=1)
        weights += [before, newest]
        parent = version if fork else None
        await run.learner.publish(newest, here.weights("2"), parent)
        await evaluated(run, 3 if fork else 2)
    assert len(attempts) == 1
    (file,) = (run.folder / "evaluations").glob(f"*@{newest}.jsonl")
    assert json.loads(file.read_text(encoding="utf-8"))["versions"] == [str(newest)]
