"""The train lane admits what the capacity formula allows, and never more."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from engine.images.media import Media
from engine.journal.journal import Counts, Journal, JournalFull
from engine.lanes import train as scheduler
from engine.lanes.train import TrainLane
from tests.support.engines import until
from toolwright.recipe import Run
from toolwright.types import Event, SamplingParams, Status, StopReason, Task, Trajectory

RollOut = Callable[[int], Awaitable[list[Trajectory]]]


def trajectory(position: int, index: int) -> Trajectory:
    return Trajectory(
        id=f"g{position}-{index}",
        group_id=f"g{position}",
        index=index,
        task=Task(id=str(position)),
        sequences=(),
        status=Status.COMPLETED,
        stop_reason=StopReason.ANSWERED,
    )


class Lane:
    """A train lane whose rollouts are `roll_out`; counts what it admits."""

    def __init__(
        self, journal: Journal, roll_out: RollOut | None, *, max_concurrent: int = 1000, **run: Any
    ) -> None:
        self.admitted: list[int] = []
        self.finish = asyncio.Event()
        table = Run.model_validate(
            {
                "name": "r", "folder": ".", "steps": 10, "groups_per_step": 4, "group_size": 2,
                "correction": "decoupled" if run.get("max_staleness") else "bypass", **run,
            }
        )  # fmt: skip
        self.size = table.group_size
        self.lane = TrainLane(
            run=table,
            setting=cast("Any", None),
            rewards=cast("Any", None),
            source=cast("Any", None),
            journal=journal,
            sampling=cast("Any", None),
            max_concurrent=max_concurrent,
            max_attempts=1,
            on_trajectory=lambda _trajectory: None,
        )
        self._roll_out = roll_out or self._wait

    async def _wait(self, position: int) -> list[Trajectory]:
        await self.finish.wait()
        return []

    async def begin(
        self, position: int, _round: int = 0, _shown: dict[str, Media] | None = None
    ) -> list[Trajectory]:
        self.admitted.append(position)
        await self._roll_out(position)
        return [trajectory(position, index) for index in range(self.size)]


@asynccontextmanager
async def serving(
    tmp_path: Path, roll_out: RollOut | None = None, **run: Any
) -> AsyncIterator[Lane]:
    journal = Journal(tmp_path / "j.sqlite")
    made = Lane(journal, roll_out, **run)
    made.lane._roll_out = made.begin  # type: ignore[method-assign]
    task = asyncio.create_task(made.lane.run())
    try:
        yield made
    finally:
        made.finish.set()
        made.lane.drain()
        async with asyncio.timeout(20):
            await task
        await journal.close()


async def settled(lane: Lane, groups: int) -> None:
    """`groups` were admitted, and no more come."""
    await until(lambda: len(lane.admitted) >= groups, f"{groups} groups, got {lane.admitted}")
    await asyncio.sleep(0.05)
    assert lane.admitted == list(range(groups))


async def test_staleness_0_admits_one_batch_a_version(tmp_path: Path) -> None:
    async with serving(tmp_path) as lane:
        await settled(lane, 4)
        lane.finish.set()  # all four are accepted: still the same batch
        await until(lambda: lane.lane.counts.accepted == 8, "four groups")
        await settled(lane, 4)
        await lane.lane.changed(1)
        await settled(lane, 8)


async def test_staleness_admits_ahead(tmp_path: Path) -> None:
    async with serving(tmp_path, max_staleness=2) as lane:
        await settled(lane, 12)


async def test_max_concurrent(tmp_path: Path) -> None:
    async with serving(tmp_path, max_concurrent=5) as lane:
        await settled(lane, 2)


async def test_a_group_above_max_concurrent_runs_all_the_same(tmp_path: Path) -> None:
    async with serving(tmp_path, max_concurrent=1) as lane:
        await settled(lane, 1)


@pytest.mark.parametrize("staleness", [0, 2])
async def test_nothing_beyond_the_last_step_is_sampled(tmp_path: Path, staleness: int) -> None:
    async with serving(tmp_path, max_staleness=staleness, steps=2) as lane:
        lane.finish.set()
        for step in range(5):
            await lane.lane.changed(step)
            await asyncio.sleep(0.02)
        await settled(lane, 8)


async def test_a_run_of_no_steps_samples_nothing(tmp_path: Path) -> None:
    async with serving(tmp_path, steps=0) as lane:
        await settled(lane, 0)


async def test_what_was_admitted_is_journaled_at_a_drain(tmp_path: Path) -> None:
    async with serving(tmp_path) as lane:
        await settled(lane, 4)
        lane.lane.drain()
        await lane.lane.changed(1)
        lane.finish.set()
    assert lane.admitted == [0, 1, 2, 3]
    journal = Journal(tmp_path / "j.sqlite")
    assert await journal.finished_positions() == {0, 1, 2, 3}
    await journal.close()


async def test_positions_go_on_after_a_restart(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j.sqlite")
    for position in (0, 2):
        await journal.add_group(position=position, identity="g", members=[b"x", b"y"], versions=[])
    await journal.close()
    async with serving(tmp_path) as lane:
        await until(lambda: len(lane.admitted) >= 2, "two groups")
        await asyncio.sleep(0.02)
        assert lane.admitted == [1, 3]  # two of four are there


class HeldJournal:
    """Its counts are true when they are asked for, and arrive when their gate opens."""

    def __init__(self) -> None:
        self.accepted = 0
        self.gates: list[asyncio.Event] = []
        self.boot = 1

    async def finished_positions(self) -> set[int]:
        return set()

    async def add_group(self, **_group: Any) -> int:
        self.accepted += 1
        return self.accepted

    async def counts(self) -> Counts:
        counts = Counts(
            accepted=self.accepted,
            waiting=self.accepted,
            dropped_groups=0,
            last_sequence=self.accepted,
            durable_sequence=0,
        )
        if self.gates:
            await self.gates.pop(0).wait()
        return counts


async def test_a_group_counts_at_every_moment() -> None:
    """Between in flight and accepted there is no moment in which it is neither: at staleness 0
    that would let a trajectory of the next batch start under this batch's weights."""
    journal = HeldJournal()
    lane = Lane(cast("Any", journal), None, groups_per_step=1, group_size=1)
    lane.lane._roll_out = lane.begin  # type: ignore[method-assign]
    task = asyncio.create_task(lane.lane.run())
    await until(lambda: lane.admitted == [0], "the batch's only group")

    early, late = asyncio.Event(), asyncio.Event()
    journal.gates = [early, late]
    looking = asyncio.create_task(lane.lane.changed())  # sees nothing accepted
    await asyncio.sleep(0)
    lane.finish.set()
    await until(lambda: journal.accepted == 1 and not journal.gates, "the group's own look")
    early.set()
    await looking
    await asyncio.sleep(0.01)
    assert lane.admitted == [0]

    late.set()
    await lane.lane.changed(1)
    await until(lambda: lane.admitted == [0, 1], "the next version's group")
    lane.lane.drain()
    await task


class FullJournal(HeldJournal):
    """Has no room for the first two tries."""

    def __init__(self) -> None:
        super().__init__()
        self.tries = 0

    async def add_group(self, **group: Any) -> int:
        self.tries += 1
        if self.tries <= 2:
            raise JournalFull(Path("journal.sqlite"))
        return await super().add_group(**group)


async def test_a_full_disk_stops_admissions_and_loses_no_group(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(scheduler, "FULL_SECONDS", 0.05)
    journal = FullJournal()
    lane = Lane(cast("Any", journal), None, groups_per_step=1, group_size=1)
    lane.lane._roll_out = lane.begin  # type: ignore[method-assign]
    task = asyncio.create_task(lane.lane.run())
    await until(lambda: lane.admitted == [0], "the batch's only group")
    lane.finish.set()
    await until(lambda: lane.lane.full, "the full disk")
    await lane.lane.changed(1)
    await asyncio.sleep(0.01)
    assert lane.admitted == [0]
    await until(lambda: journal.accepted == 2, "room, and the next version's group")
    assert lane.admitted == [0, 1]
    assert not lane.lane.full
    lane.lane.drain()
    await task


def errored(position: int, index: int) -> Trajectory:
    return replace(
        trajectory(position, index),
        status=Status.ERRORED,
        events=(Event(kind="attempt_failed", turn=0, data={"error": "down", "permanent": False}),),
    )


async def test_a_group_that_infrastructure_failed_whole_is_run_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scheduler, "LONGEST_PAUSE", 0.01)
    rounds: list[int] = []

    async def roll_out(position: int, round_: int, _shown: dict[str, Media]) -> list[Trajectory]:
        rounds.append(round_)
        made = errored if round_ < 2 else trajectory
        return [made(position, 0), errored(position, 1)]

    journal = Journal(tmp_path / "j.sqlite")
    lane = Lane(journal, None, groups_per_step=1).lane
    lane._roll_out = roll_out  # type: ignore[method-assign]
    task = asyncio.create_task(lane.run())
    await until(lambda: lane.counts.accepted == 2, "the group")
    assert rounds == [0, 1, 2]
    lane.drain()
    await task
    (group,) = await journal.groups_after(0, 9)
    assert len(group.members) == 2  # one living member is enough
    await journal.close()


def test_a_task_s_own_sampling_overlays_the_recipe_s() -> None:
    recipe = SamplingParams(temperature=1.0, top_p=0.9)
    assert scheduler.overlaid(recipe, None) == recipe
    task = SamplingParams(temperature=0.0, max_new_tokens=5)
    assert scheduler.overlaid(recipe, task) == SamplingParams(
        temperature=0.0, top_p=0.9, max_new_tokens=5
    )
