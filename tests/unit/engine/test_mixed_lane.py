"""The train lane with two tasks: exact batches, own sources, and a restart in the middle."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

from engine.core.tasks import BadRows, DrawnTask
from engine.errors import TaskUnfit
from engine.serving.admission.dynamic_sampling import MOST_EMPTY_ROUNDS, GroupFilter
from engine.serving.admission.mixing import Mixture
from engine.serving.admission.places import Places
from engine.serving.admission.train import TrainLane
from engine.serving.crew.crew import GroupAssignment
from engine.serving.journal.journal import Journal
from engine.serving.journal.reader import reading
from tests.support.waiting import until
from tests.unit.engine.test_scheduler import EndedMember, Positions, member
from toolwright.recipe import DynamicSampling, Run
from toolwright.types import SamplingParams

ALLOTMENT = {"math": 2, "sql": 1}
MATH, SQL = 0, 1
"""Places of the tasks: position p of the run is of task p % 2."""


@dataclass(slots=True)
class Mixed:
    """A lane with two tasks, of one trajectory a group. ends: what becomes of a group, by its
    position: nothing for the common end, an event to wait for, or an error to raise."""

    lane: TrainLane
    asked: list[str]
    drawn: list[DrawnTask]


def mixed(
    journal: Journal,
    *,
    ends: Mapping[int, asyncio.Event | Exception] | None = None,
    sources: Mapping[str, Positions] | None = None,
    group_filter: GroupFilter | None = None,
    reward: Callable[[int], float] = lambda position: 1.0,
    **run: Any,
) -> Mixed:
    table = Run.model_validate(
        {
            "name": "r", "folder": ".", "steps": 10, "groups_per_step": 3, "group_size": 2,
            "correction": "decoupled" if run.get("max_staleness") else "bypass", **run,
        }
    )  # fmt: skip
    asked: list[str] = []
    drawn_tasks: list[DrawnTask] = []

    class Fake:
        def __init__(self, name: str) -> None:
            self._name = name

        async def run_group(self, group: GroupAssignment) -> list[EndedMember]:
            asked.append(self._name)
            drawn_tasks.append(group.drawn)
            group.queued.set()
            position = int(group.group_id[1:])
            end = (ends or {}).get(position)
            if isinstance(end, Exception):
                raise end
            if end is not None:
                await end.wait()
            made = [member(group.group_id, index).trajectory for index in range(2)]
            made[0] = replace(made[0], reward=reward(position))
            return [EndedMember(trajectory=replace(one, task=group.drawn.task)) for one in made]

    lane = TrainLane(
        run=table,
        steps=table.steps or 0,
        crews={name: cast("Any", Fake(name)) for name in ALLOTMENT},
        places=Places(100),
        sources=cast("Any", sources or {name: Positions() for name in ALLOTMENT}),
        mixture=Mixture(ALLOTMENT),
        journal=journal,
        sampling=SamplingParams(),
        bad_rows=BadRows(100),
        on_trajectory=lambda _trajectory: None,
        group_filter=group_filter,
    )
    return Mixed(lane, asked, drawn_tasks)


def stored(folder: Path) -> list[int]:
    """Positions of the journal's groups in the order of delivery."""
    with reading(folder) as reader:
        return [int(group[0].attempt.partition("-")[0][1:]) for group in reader.groups()]


async def until_accepted(one: Mixed, groups: int) -> None:
    await until(lambda: one.lane.counts.accepted >= 2 * groups, f"{groups} groups")


async def ended(one: Mixed, lane: asyncio.Task[None]) -> None:
    one.lane.drain()
    async with asyncio.timeout(20):
        await lane


async def test_every_batch_has_each_task_s_groups(tmp_path: Path) -> None:
    """Also where a row or a question of a task is of no use."""
    journal = Journal(tmp_path / "journal.sqlite", history="all")
    sources = {"math": Positions(bad={0}), "sql": Positions()}
    one = mixed(journal, sources=sources, ends={1: TaskUnfit("no prompt")})
    running = asyncio.create_task(one.lane.run())
    for step in range(3):
        one.lane.changed(step)
        await until_accepted(one, 3 * (step + 1))
    await ended(one, running)
    await journal.close()
    tasks = [position % 2 for position in stored(tmp_path)]
    assert [sorted(tasks[start : start + 3]) for start in (0, 3, 6)] == [[MATH, MATH, SQL]] * 3
    assert sorted(stored(tmp_path)) == [2, 3, 4, 5, 6, 7, 8, 10, 12]
    assert one.lane.counts.skipped == 2
    for drawn, name in zip(one.drawn, one.asked, strict=True):
        assert drawn.task.name == name
    own = [drawn.position for drawn in one.drawn if drawn.task.name == "math"]
    assert own == list(range(1, 7)), "each task walks through its own source"


async def test_a_slow_task_is_waited_for_where_batches_are_sampled_ahead(tmp_path: Path) -> None:
    """The first question of sql takes long: math of the next batches is done, and waits."""
    journal = Journal(tmp_path / "journal.sqlite", history="all")
    slow = asyncio.Event()
    one = mixed(journal, ends={1: slow}, max_staleness=2)
    running = asyncio.create_task(one.lane.run())
    await until_accepted(one, 2)
    await until(lambda: len(one.asked) == 9, "three batches are admitted")
    # math of this batch is there, sql of later ones is done: one of those takes the slow one's
    # place, and none is stored beyond the allotment.
    await until_accepted(one, 6)
    slow.set()
    await until_accepted(one, 9)
    await ended(one, running)
    await journal.close()
    tasks = [position % 2 for position in stored(tmp_path)]
    assert [sorted(tasks[start : start + 3]) for start in (0, 3, 6)] == [[MATH, MATH, SQL]] * 3


async def test_a_task_that_never_varies_ends_the_run_although_the_others_wait(
    tmp_path: Path,
) -> None:
    """Groups of math are done and hold on to their log; no group of sql will ever be kept."""
    journal = Journal(tmp_path / "journal.sqlite")
    one = mixed(
        journal,
        group_filter=GroupFilter(DynamicSampling(), groups_per_step=3),
        reward=lambda position: float(position % 2 == MATH),
        max_staleness=1,
    )
    running = asyncio.create_task(one.lane.run())
    await until(lambda: one.lane.ends_fruitless, "the end")
    assert one.lane.counts.turned_away >= 3 * MOST_EMPTY_ROUNDS
    await ended(one, running)
    await journal.close()


async def test_a_task_that_all_others_wait_for_holds_their_groups_until_a_drain(
    tmp_path: Path,
) -> None:
    journal = Journal(tmp_path / "journal.sqlite", history="all")
    never = asyncio.Event()
    hung = {position: never for position in (1, 3, 5)}
    one = mixed(journal, ends=hung, max_staleness=2)
    running = asyncio.create_task(one.lane.run())
    await until_accepted(one, 2)
    await until(lambda: len(one.asked) == 9, "three batches are admitted")
    assert one.lane.counts.accepted == 4
    one.lane.drain()
    never.set()
    async with asyncio.timeout(20):
        await running
    await journal.close()
    kept = stored(tmp_path)
    assert {0, 2} <= set(kept), "what had its place is stored"
