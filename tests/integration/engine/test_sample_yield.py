"""`engine sample` as rejection sampling: several criteria, shards, budgets; and the same command
again, which does nothing twice."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from bench.scripted import Timing
from engine.offline.collect.budget import Budget
from engine.offline.enums import Dedupe, ExportLayout
from engine.offline.prices import Prices
from engine.offline.signals import StoppedBySignal
from engine.serving import json_lines as files
from tests.integration.engine.conftest import MakeWorld, World
from tests.support.collected import KEEPS, VARIANTS, Varied, collect, kept, progress, variant
from tests.support.engines import killed_when
from tests.support.recipes import merged, write_recipe
from tests.support.waiting import holds_for, until

pytestmark = pytest.mark.quick

MANY = 200
PER_TASK = 2
CALLS: dict[str, Any] = {"keep": KEEPS, "dedupe": Dedupe.CALLS, "per_task": PER_TASK}


def expected(tasks: int) -> tuple[list[str], dict[str, Any]]:
    """(names of what stays, the counts), from the table of what the policy says."""
    names, first, refused, alone = [], Counter[str](), Counter[str](), Counter[str]()
    duplicates = 0
    for position in range(tasks):
        new = 0
        for index in range(PER_TASK):
            said = variant(position, index)
            refusing = [name for name in ("right", "called", "few") if name in VARIANTS[said][1]]
            refused.update(refusing)
            if refusing:
                first[refusing[0]] += 1
                alone.update(refusing if len(refusing) == 1 else ())
            elif new:  # both that are not refused make one and the same call
                duplicates += 1
            else:
                new += 1
                names.append(f"s{position:07d}-{index}")
    return names, {
        "rolled_out": tasks * PER_TASK,
        "kept": len(names),
        "infrastructure": 0,
        "masked": 0,
        "duplicates": duplicates,
        "over_the_cap": 0,
        "criteria": {
            name: (first[name], refused[name], alone[name]) for name in ("right", "called", "few")
        },
    }


def told_yield(here: World) -> dict[str, Any]:
    """OUTPUT.yield.json, and that it adds up."""
    found: dict[str, Any] = json.loads(
        (here.folder / "kept.yield.json").read_text(encoding="utf-8")
    )
    others = ("kept", "infrastructure", "masked", "duplicates", "over_the_cap")
    first = sum(one["refused_first"] for one in found["criteria"])
    assert found["rolled_out"] == first + sum(found[name] for name in others)
    return found


def counts(found: dict[str, Any]) -> dict[str, Any]:
    criteria = {
        one["name"]: (one["refused_first"], one["refused"], one["refused_alone"])
        for one in found["criteria"]
    }
    names = ("rolled_out", "kept", "infrastructure", "masked", "duplicates", "over_the_cap")
    return {**{name: found[name] for name in names}, "criteria": criteria}


async def varied(world: MakeWorld) -> World:
    here = await world(task={"limits": {"turns": 8}})
    Varied().speak(here)
    return here


async def test_killed_again_and_again_nothing_is_lost_or_double_and_yields_add_up(
    world: MakeWorld,
) -> None:
    here = await varied(world)
    few = {"engine": {"max_concurrent": 8}}
    file = write_recipe(here.folder, merged(here.tables, few))
    words = [
        *("sample", file, "--output", here.folder / "kept", "--n", MANY, "--per-task", PER_TASK),
        *(word for one in KEEPS for word in ("--keep", one)),
        *("--dedupe", "calls", "--shard-size", "25", "--export", "openai", "--export", "hermes"),
    ]
    for least in (3, 90, 185):
        await killed_when(
            lambda least=least: len(progress(here)) >= least,  # type: ignore[misc]
            f"{least} tasks",
            *words,
            cwd=here.folder,
        )
    assert len(progress(here)) >= 185
    exports = (ExportLayout.OPENAI, ExportLayout.HERMES)
    told = await collect(here, n=MANY, changes=few, shard_size=25, export=exports, **CALLS)
    names, figures = expected(MANY)
    assert told.startswith(f"{MANY} of {MANY} tasks: {len(names)} kept")
    assert sorted(one.id for one in kept(here)) == names
    assert sorted(row["position"] for row in progress(here)) == list(range(MANY))
    assert counts(told_yield(here)) == figures
    assert told_yield(here)["complete"] is True
    shards = sorted(path.name for path in (here.folder / "kept").glob("*.trajectories"))
    assert len(shards) == -(-len(names) // 25)
    for layout in exports:
        files = sorted((here.folder / "kept").glob(f"*{layout.suffix}"))
        ids = [
            json.loads(row)["id"]
            for one in files
            for row in one.read_text(encoding="utf-8").splitlines()
        ]
        assert ids == [one.id for one in kept(here)]
    assert not list(here.folder.rglob("*.unfinished"))
    assert not here.tools.live


async def test_the_table_shows_what_each_criterion_alone_refuses(world: MakeWorld) -> None:
    here = await varied(world)
    told = await collect(here, n=7, prices=Prices(read=1.0, written=1000.0), **CALLS)
    _, figures = expected(7)
    assert counts(told_yield(here)) == figures
    table = [line.split() for line in told.splitlines()]
    assert ["rolled", "out", "14", "100.0%"] in table
    assert ["right", "6", "42.9%", "6", "2"] in table
    assert ["called", "2", "14.3%", "4", "2"] in table
    assert ["few", "2", "14.3%", "4", "2"] in table
    assert ["duplicates", "1", "7.1%"] in table
    assert ["kept", "3", "21.4%"] in table
    found = told_yield(here)
    for one in found["criteria"]:
        assert f"refused by {one['name']}, for example: {one['example']}" in told
        assert one["example"].startswith("s00000")
    spent = found["tokens"]
    assert found["cost"] == pytest.approx((spent["read"] + 1000 * spent["written"]) / 1e6)
    assert f"cost {found['cost']:.4g}" in told
    written = sum(one.response_tokens for one in kept(here))
    assert 0 < written < spent["written"]


async def test_a_budget_of_tokens_is_kept_and_a_larger_one_goes_on(world: MakeWorld) -> None:
    here = await world()
    one = {"engine": {"max_concurrent": 1}}
    await collect(here, n=1, changes=one, output=here.folder / "a task")
    cost = json.loads((here.folder / "a task.yield.json").read_text(encoding="utf-8"))["tokens"][
        "written"
    ]
    budget = Budget(tokens=10 * cost)
    told = await collect(here, n=40, changes=one, budget=budget)
    assert told.startswith("10 of 40 tasks: 10 kept")
    assert f"ended by --budget-tokens {10 * cost}: the same command with" in told
    found = told_yield(here)
    assert (found["tokens"]["written"], found["complete"]) == (10 * cost, False)
    assert found["ended_by"] == f"--budget-tokens {10 * cost}"
    assert len(kept(here)) == 10
    asked = len(here.sampler.requests)
    assert (await collect(here, n=40, changes=one, budget=budget)).startswith("10 of 40")
    assert len(here.sampler.requests) == asked
    told = await collect(here, n=40, changes=one, budget=Budget(tokens=10**9))
    assert told.startswith("40 of 40 tasks: 40 kept")
    assert "ended by" not in told
    assert told_yield(here)["ended_by"] is None
    assert len({one.id for one in kept(here)}) == 40


async def test_a_budget_of_time_drops_what_is_in_flight(world: MakeWorld) -> None:
    here = await world(timing=Timing(tokens_per_second=100))
    one = {"engine": {"max_concurrent": 1}}
    told = await collect(here, n=100, changes=one, budget=Budget(seconds=2.0))
    first = len(kept(here))
    assert told.startswith(f"{first} of 100 tasks: {first} kept")
    assert "ended by --budget-seconds 2:" in told
    assert first < 100
    assert not here.tools.live
    assert not list(here.folder.glob("*.unfinished"))
    asked = len(here.sampler.requests)
    assert (await collect(here, n=100, changes=one, budget=Budget(seconds=2.0))).startswith(
        f"{first} of 100 tasks"
    )
    assert len(here.sampler.requests) == asked
    told = await collect(here, n=first + 3, changes=one, budget=Budget(seconds=60.0))
    assert told.startswith(f"{first + 3} of {first + 3} tasks: {first + 3} kept")
    assert len({one.id for one in kept(here)}) == first + 3


async def test_no_room_for_the_yield_ends_nothing(world: MakeWorld, tmp_path: Path) -> None:
    here = await world()
    (here.folder / "kept.yield.json").mkdir()
    assert (await collect(here, n=2)).startswith("2 of 2 tasks: 2 kept")


async def test_what_is_done_is_not_done_twice(world: MakeWorld) -> None:
    here = await world()
    first = await collect(here, n=2)
    asked, data = len(here.sampler.requests), (here.folder / "kept").read_bytes()
    assert await collect(here, n=2) == first
    assert (len(here.sampler.requests), (here.folder / "kept").read_bytes()) == (asked, data)
    before = kept(here)
    await collect(here, n=5)
    assert len(here.sampler.requests) == asked + 3 * 2
    assert kept(here)[:2] == before
    assert sorted(t.task.id for t in kept(here)) == [f"t{number}" for number in range(5)]


async def test_a_signal_stops_it_and_the_same_command_goes_on(world: MakeWorld) -> None:
    here = await world(timing=Timing(tokens_per_second=100))
    few = {"engine": {"max_concurrent": 1}}
    work = asyncio.create_task(collect(here, n=4, changes=few))
    await until(lambda: len(progress(here)) >= 1, "a task")
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


async def test_on_a_full_disk_it_waits(world: MakeWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "FULL_SECONDS", 0.05)
    here = await world()
    unfinished = here.folder / "kept.unfinished"
    unfinished.symlink_to("/dev/full")
    work = asyncio.create_task(collect(here, n=2))
    await until(lambda: len(here.sampler.requests) >= 4, "the trajectories")
    await holds_for(0.2, lambda: not work.done(), "the work to wait for room")
    unfinished.unlink()
    assert (await work).startswith("2 of 2 tasks: 2 kept")
    assert len(kept(here)) == 2
