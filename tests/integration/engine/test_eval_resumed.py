"""`engine eval`, the same command again: every question has one score, whatever ended the first."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections import Counter

import pytest

from bench.scripted import Timing
from engine.offline.signals import StoppedBySignal
from tests.integration.engine.conftest import MakeWorld
from tests.support.evaluated import asked, lines
from tests.support.evaluations import cut, lane, suite
from tests.support.recipes import write_recipe
from tests.support.waiting import until

pytestmark = pytest.mark.quick


async def test_killed_twice_every_question_is_there_exactly_once(world: MakeWorld) -> None:
    here = await world(
        timing=Timing(tokens_per_second=200), engine=lane(suite("a", 12), suite("b", 12))
    )
    file, folder = write_recipe(here.folder, here.tables), here.folder / "eval"
    seen = 0
    for least in (4, 12):
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "engine.cli", "eval", str(file), "--concurrency", "3"),
            *("--output", str(folder)),
        )
        await until(lambda least=least: len(lines(folder)) >= least, "rows")  # type: ignore[misc]
        process.kill()
        await process.wait()
        done = {f"{row['suite']}-{row['index']}" for row in lines(folder)}
        assert least <= len(done) < 24
        seen = len(here.sampler.requests)
    found = await asked(here, concurrency=3)
    again = {
        str(s.body["routing_key"]).partition("/")[0].rpartition(".")[2]
        for s in here.sampler.requests[seen:]
    }
    assert again and not again & done
    assert [(one["name"], one["n"], one["score"]) for one in found["sets"]] == [
        ("a", 12, 1.0), ("b", 12, 1.0),
    ]  # fmt: skip
    rows = Counter((row["suite"], row["task_id"]) for row in lines(folder))
    assert set(rows.values()) == {1}
    assert len(rows) == 24
    assert not here.tools.live


async def test_a_line_that_a_kill_cut_is_measured_again(world: MakeWorld) -> None:
    here = await world(engine=lane(suite("nq", 6)))
    await asked(here)
    seen = len(here.sampler.requests)
    (file,) = (here.folder / "eval" / "evaluations").iterdir()
    cut(file, 4)
    found = await asked(here)
    assert len(here.sampler.requests) == seen + 2 * 2
    assert found["sets"][0]["n"] == 6
    assert sorted(row["index"] for row in lines(here.folder / "eval")) == list(range(6))


async def test_a_signal_stops_it_in_order_and_the_same_command_goes_on(world: MakeWorld) -> None:
    here = await world(timing=Timing(tokens_per_second=100), engine=lane(suite("nq", 8)))
    work = asyncio.create_task(asked(here, concurrency=2))
    await until(lambda: len(lines(here.folder / "eval")) >= 2, "rows")
    os.kill(os.getpid(), signal.SIGINT)
    with pytest.raises(StoppedBySignal, match="stopped by SIGINT; the same command goes on"):
        await work
    assert not here.tools.live
    assert not (here.folder / "eval" / "results.json").exists()
    here.sampler.scheduler._timing = Timing()
    found = await asked(here)
    assert (found["sets"][0]["n"], found["complete"]) == (8, True)
