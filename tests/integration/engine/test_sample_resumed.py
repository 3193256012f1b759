"""`engine sample`, the same command again: what is done is not done twice."""

from __future__ import annotations

import asyncio
import os
import signal
import sys

import pytest

from bench.scripted import Timing
from engine.offline.signals import StoppedBySignal
from engine.serving import json_lines as files
from tests.integration.engine.conftest import MakeWorld
from tests.support.collected import collect, kept, progress
from tests.support.recipes import merged, write_recipe
from tests.support.waiting import holds_for, until

pytestmark = pytest.mark.quick


async def test_a_larger_n_goes_on_from_what_is_done(world: MakeWorld) -> None:
    here = await world()
    await collect(here, n=2)
    asked = len(here.sampler.requests)
    before = kept(here)
    await collect(here, n=5)
    assert len(here.sampler.requests) == asked + 3 * 2
    assert kept(here)[:2] == before
    assert sorted(t.task.id for t in kept(here)) == [f"t{number}" for number in range(5)]


async def test_the_same_command_again_does_nothing(world: MakeWorld) -> None:
    here = await world()
    first = await collect(here)
    asked, data = len(here.sampler.requests), (here.folder / "kept").read_bytes()
    assert await collect(here) == first
    assert (len(here.sampler.requests), (here.folder / "kept").read_bytes()) == (asked, data)


async def test_after_a_kill_no_finished_task_runs_again(world: MakeWorld) -> None:
    here = await world()
    await collect(here, n=4)
    asked = len(here.sampler.requests)
    # What a kill leaves: the third task's line was cut, its trajectory and the fourth's are there.
    output, lines = here.folder / "kept", here.folder / "kept.progress.jsonl"
    output.rename(here.folder / "kept.unfinished")
    whole = lines.read_text(encoding="utf-8").splitlines(keepends=True)
    lines.write_text("".join(whole[:3]) + whole[3][:30], encoding="utf-8")
    await collect(here, n=4)
    assert len(here.sampler.requests) == asked + 2 * 2
    assert sorted(t.task.id for t in kept(here)) == ["t0", "t1", "t2", "t3"]


async def test_a_signal_stops_it_and_the_same_command_goes_on(world: MakeWorld) -> None:
    here = await world(timing=Timing(tokens_per_second=100))
    few = {"engine": {"max_concurrent": 1}}
    work = asyncio.create_task(collect(here, n=4, changes=few))
    lines = here.folder / "kept.progress.jsonl"
    await until(
        lambda: lines.exists() and lines.read_text(encoding="utf-8").count("\n") >= 2, "a task"
    )
    os.kill(os.getpid(), signal.SIGTERM)
    with pytest.raises(StoppedBySignal, match="stopped by SIGTERM; the same command goes on"):
        await work
    assert not here.tools.live
    assert not (here.folder / "kept").exists()
    done = {row["task_id"] for row in progress(here)}
    assert 1 <= len(done) < 4
    seen = len(here.sampler.requests)
    await collect(here, n=4, changes=few)
    again = {str(s.body["routing_key"]) for s in here.sampler.requests[seen:]}
    assert {key.partition("-")[0] for key in again} == {
        f"s{number:07d}" for number in range(4) if f"t{number}" not in done
    }
    assert len(kept(here)) == 4


async def test_killed_for_real_it_loses_the_tasks_in_flight_and_no_others(
    world: MakeWorld,
) -> None:
    here = await world(timing=Timing(tokens_per_second=200))
    few = {"engine": {"max_concurrent": 2}}
    file = write_recipe(here.folder, merged(here.tables, few))
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "engine.cli", "sample", str(file),
        "--output", str(here.folder / "kept"), "--n", "12",
    )  # fmt: skip
    lines = here.folder / "kept.progress.jsonl"
    await until(
        lambda: lines.exists() and lines.read_text(encoding="utf-8").count("\n") >= 4, "some tasks"
    )
    process.kill()
    await process.wait()
    assert here.tools.live
    done = {f"s{row['position']:07d}" for row in progress(here)}
    seen = len(here.sampler.requests)
    told = await collect(here, n=12, changes=few)
    again = {str(s.body["routing_key"]).partition("-")[0] for s in here.sampler.requests[seen:]}
    assert not again & done
    assert told.splitlines()[0] == "12 of 12 tasks: 12 kept, 0 bad rows"
    assert sorted(t.id for t in kept(here)) == [f"s{number:07d}-0" for number in range(12)]
    assert not here.tools.live


async def test_on_a_full_disk_it_waits(world: MakeWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "FULL_SECONDS", 0.05)
    here = await world()
    unfinished = here.folder / "kept.unfinished"
    unfinished.symlink_to("/dev/full")
    work = asyncio.create_task(collect(here, n=2))
    await until(lambda: len(here.sampler.requests) >= 4, "the trajectories")
    await holds_for(0.2, lambda: not work.done(), "the work to wait for room")
    assert not work.done()
    unfinished.unlink()
    assert (await work).startswith("2 of 2 tasks: 2 kept")
    assert len(kept(here)) == 2
