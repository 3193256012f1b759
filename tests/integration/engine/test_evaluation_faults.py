"""Faults around an evaluation: none of them is counted as a wrong answer."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from bench.scripted import Timing
from engine.serving import json_lines as files
from engine.serving.crew import in_process
from engine.serving.evaluation import suite as suites
from tests.integration.engine.conftest import MakeWorld
from tests.support.evaluations import NONE, evaluated, lane, lines, lost, rows, suite
from tests.support.tools import ToolDouble, serving
from tests.support.waiting import holds_for, until

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


async def test_an_evaluation_without_a_measured_row_is_not_recorded(
    world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The engine's next start at this version tries again."""
    monkeypatch.setattr(in_process, "SCORE_PAUSES", (0.01,))
    here = await world(run={**NONE, "steps": 0}, engine=lane(suite(n=2)))
    here.rewards("raise OSError('away')")
    async with here.engine() as run:
        await until(
            lambda: run.engine.status.message().final_evaluation_done, "the evaluation's end"
        )
    assert lines(run.folder) == []
    assert all("OSError('away')" in row["errored"] for row in rows(run.folder))


async def test_a_failed_reward_is_asked_again(
    world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(in_process, "SCORE_PAUSES", (0.01,))
    here = await world(run={**NONE, "steps": 0}, engine=lane(suite(n=2)))
    here.rewards(
        "if trajectory.id not in seen:",
        "    seen.add(trajectory.id)",
        "    raise OSError('away')",
        "return 0.5",
        before="seen = set()",
    )
    async with here.engine() as run:
        await evaluated(run, 1)
    (result,) = lines(run.folder)
    assert (result["n"], result["reward"], result["errored"]) == (2, 0.5, 0)


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
