"""The train lane with two tasks: exact batches, own sources, and a restart in the middle."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import pytest

from engine.core.tasks import BadRows, DrawnTask
from engine.errors import StartupError, TaskUnfit
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
            rewards = (reward(position), 0.0)
            return [
                EndedMember(trajectory=replace(one, task=group.drawn.task, reward=own))
                for one, own in zip(made, rewards, strict=True)
            ]

    lane = TrainLane(
        run=table,
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
    journal = Journal(tmp_path / "journal.sqlite", history="all")
    one = mixed(journal)
    running = asyncio.create_task(one.lane.run())
    for step in range(3):
        one.lane.changed(step)
        await until_accepted(one, 3 * (step + 1))
    await ended(one, running)
    await journal.close()
    tasks = [position % 2 for position in stored(tmp_path)]
    assert [sorted(tasks[start : start + 3]) for start in (0, 3, 6)] == [[MATH, MATH, SQL]] * 3
    assert sorted(stored(tmp_path)) == [0, 1, 2, 3, 4, 5, 6, 8, 10]
    for drawn, name in zip(one.drawn, one.asked, strict=True):
        assert drawn.task.name == name
    own = [drawn.position for drawn in one.drawn if drawn.task.name == "math"]
    assert own == list(range(6)), "each task walks through its own source"


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


async def test_a_restart_goes_on_at_each_task_s_own_position(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal.sqlite", history="all")
    one = mixed(journal, ends={1: asyncio.Event()})
    running = asyncio.create_task(one.lane.run())
    await until_accepted(one, 2)
    running.cancel()  # a kill: the question of sql is in flight
    with suppress(asyncio.CancelledError):
        await running
    await journal.close()

    journal = Journal(tmp_path / "journal.sqlite", history="all")
    again = mixed(journal)
    running = asyncio.create_task(again.lane.run())
    await until_accepted(again, 3)
    again.lane.changed(1)
    await until_accepted(again, 6)
    await ended(again, running)
    await journal.close()
    assert again.asked[0] == "sql"
    assert stored(tmp_path)[:3] == [0, 2, 1]
    assert sorted(stored(tmp_path)) == [0, 1, 2, 3, 4, 6], "no question twice, none left out"


async def test_a_question_that_cannot_be_asked_is_made_up_for_by_its_own_task(
    tmp_path: Path,
) -> None:
    journal = Journal(tmp_path / "journal.sqlite", history="all")
    sources = {"math": Positions(bad={0}), "sql": Positions()}
    ends: dict[int, asyncio.Event | Exception] = {1: TaskUnfit("no prompt")}
    one = mixed(journal, sources=sources, ends=ends)
    running = asyncio.create_task(one.lane.run())
    await until_accepted(one, 3)
    await ended(one, running)
    await journal.close()
    assert sorted(stored(tmp_path)) == [2, 3, 4]
    assert one.lane.counts.skipped == 2


async def test_a_task_without_a_single_good_row_ends_the_run_by_its_name(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal.sqlite")
    sources = {"math": Positions(), "sql": Positions(bad=range(9), rows=2)}
    one = mixed(journal, sources=sources)
    with pytest.raises(ExceptionGroup) as end:
        async with asyncio.timeout(20):
            await one.lane.run()
    (error,) = end.value.exceptions
    assert isinstance(error, StartupError)
    assert "no row of the task source of tasks.sql can be used" in str(error)
    await journal.close()


async def test_what_dynamic_sampling_turns_away_is_sampled_again_of_the_same_task(
    tmp_path: Path,
) -> None:
    journal = Journal(tmp_path / "journal.sqlite", history="all")
    one = mixed(
        journal,
        group_filter=GroupFilter(DynamicSampling(), groups_per_step=3),
        reward=lambda position: float(position not in (0, 1, 3)),
    )
    running = asyncio.create_task(one.lane.run())
    await until_accepted(one, 3)
    await ended(one, running)
    kept = await journal.kept_positions()
    await journal.close()
    assert sorted(kept) == [2, 4, 5]


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
