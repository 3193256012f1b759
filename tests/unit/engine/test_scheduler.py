"""The train lane admits what the capacity formula allows, and never more."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from engine.core.tasks import BadRows, DrawnTask
from engine.core.trajectory.events import Opened
from engine.errors import TaskUnfit
from engine.serving.admission import train
from engine.serving.admission.mixing import Mixture
from engine.serving.admission.places import Places
from engine.serving.admission.train import TrainLane
from engine.serving.crew.crew import GroupAssignment
from engine.serving.journal.journal import GroupCounts, Journal, JournalFull
from engine.serving.journal.logs import OpenLog
from tests.support.finished_trajectories import trajectory
from tests.support.waiting import holds_for, until
from toolwright.recipe import Run
from toolwright.types import (
    SamplingParams,
    Task,
    Trajectory,
    WeightVersion,
    ids,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedMember:
    """A member as the lane stores it."""

    trajectory: Trajectory

    serialized: None = None

    @property
    def attempt(self) -> str:
        return f"{self.trajectory.id}/b1r0a0"


def member(group_id: str, index: int) -> EndedMember:
    name = f"{group_id}-{index}"
    made = trajectory(index, id=name, group_id=group_id, task=Task(id=group_id))
    return EndedMember(trajectory=made)


class Positions:
    """A source that has a task at each position but the bad ones."""

    def __init__(self, bad: Collection[int] = (), rows: int | None = None) -> None:
        self._bad = bad
        self.rows = rows

    async def at(self, position: int) -> DrawnTask:
        row = position % self.rows if self.rows else position
        drawn = DrawnTask(position=position, task=Task(id=str(row)))
        if position in self._bad:
            raise drawn.refused("broken", "it is broken")
        return drawn


class Lane:
    """A train lane whose groups wait for `finish`, each member in a place; `admitted` says which
    came. `ends`: members that end at once, by index. `unfit`: groups that cannot be rolled out."""

    def __init__(
        self,
        journal: Any,
        *,
        max_concurrent: int = 1000,
        ends: Collection[int] = (),
        unfit: Collection[int] = (),
        source: Any = None,
        max_bad_rows: int = 100,
        **run: Any,
    ) -> None:
        self.admitted: list[int] = []
        self.finish = asyncio.Event()
        self.places = Places(max_concurrent)
        table = Run.model_validate(
            {
                "name": "r", "folder": ".", "steps": 10, "groups_per_step": 4, "group_size": 2,
                "correction": "decoupled" if run.get("max_staleness") else "bypass", **run,
            }
        )  # fmt: skip
        outer = self

        class Fake:
            async def run_group(self, group: GroupAssignment) -> list[EndedMember]:
                outer.admitted.append(int(group.group_id[1:]))
                if outer.admitted[-1] in unfit:
                    group.queued.set()
                    raise TaskUnfit("it cannot be rolled out")

                async def one(index: int) -> EndedMember:
                    async with outer.places:
                        if index not in ends:
                            await outer.finish.wait()
                        return member(group.group_id, index)

                members = [asyncio.create_task(one(index)) for index in range(group.size)]
                await asyncio.sleep(0)
                group.queued.set()
                return list(await asyncio.gather(*members))

        self.lane = TrainLane(
            run=table,
            steps=table.steps or 0,
            crews={"": cast("Any", Fake())},
            places=self.places,
            sources={"": source or Positions()},
            mixture=Mixture({"": table.groups_per_step}),
            journal=journal,
            sampling=SamplingParams(),
            bad_rows=BadRows(max_bad_rows),
            on_trajectory=lambda _trajectory: None,
        )

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        """Admits until the block ends; then the groups finish."""
        task = asyncio.create_task(self.lane.run())
        try:
            yield
        finally:
            self.finish.set()
            self.lane.drain()
            async with asyncio.timeout(20):
                await task

    async def settled(self, groups: int) -> None:
        """`groups` were admitted, and no more come."""
        await until(lambda: len(self.admitted) >= groups, f"{groups} groups, got {self.admitted}")
        await asyncio.sleep(0.05)
        assert self.admitted == list(range(groups))


Serving = Callable[..., AbstractAsyncContextManager[Lane]]


@pytest.fixture
def serving(tmp_path: Path) -> Serving:
    @asynccontextmanager
    async def serve(journal: Any = None, **run: Any) -> AsyncIterator[Lane]:
        kept = journal or Journal(tmp_path / "j.sqlite")
        made = Lane(kept, **run)
        try:
            async with made.serving():
                yield made
        finally:
            if journal is None:
                await kept.close()

    return serve


async def test_staleness_0_admits_one_batch_a_version(serving: Serving) -> None:
    async with serving() as lane:
        await lane.settled(4)
        lane.finish.set()  # all four are accepted: still the same batch
        await until(lambda: lane.lane.counts.accepted == 8, "four groups")
        await lane.settled(4)
        lane.lane.changed(1)
        await lane.settled(8)


async def test_max_concurrent(serving: Serving) -> None:
    """The third group is let in for the one place that is left."""
    async with serving(max_concurrent=5) as lane:
        await lane.settled(3)
        assert (lane.places.used, lane.places.free) == (5, -1)


@pytest.mark.parametrize("staleness", [0, 2])
async def test_nothing_beyond_the_last_step_is_sampled(serving: Serving, staleness: int) -> None:
    async with serving(max_staleness=staleness, steps=2) as lane:
        lane.finish.set()
        for step in range(5):
            lane.lane.changed(step)
            await asyncio.sleep(0.02)
        await lane.settled(8)


async def test_a_run_of_no_steps_samples_nothing(serving: Serving) -> None:
    async with serving(steps=0) as lane:
        await lane.settled(0)


async def finished(folder: Path) -> set[int]:
    journal = Journal(folder / "j.sqlite")
    try:
        return set(await journal.finished_positions())
    finally:
        await journal.close()


async def test_what_was_admitted_is_journaled_at_a_drain(serving: Serving, tmp_path: Path) -> None:
    async with serving() as lane:
        await lane.settled(4)
        lane.lane.drain()
        lane.lane.changed(1)
        lane.finish.set()
    assert lane.admitted == [0, 1, 2, 3]
    assert await finished(tmp_path) == {0, 1, 2, 3}


class JournalDouble:
    """Stores a group when its gate opens, and counts it in that very moment. full: the disk is.
    refused: first tries to store or to skip for which it has no room."""

    def __init__(self, *, full: bool = False, refused: int = 0) -> None:
        self.gate = asyncio.Event()
        self.full = full
        self.accepted = 0
        self.storing = 0
        self.tries: list[int] = []
        self._refused = refused

    @property
    def counts(self) -> GroupCounts:
        return GroupCounts(
            accepted=self.accepted, waiting=self.accepted, dropped_groups=0, last_sequence=0,
            durable_sequence=0, skipped=0,
        )  # fmt: skip

    async def first_lineage(self) -> str:
        return ""

    async def finished_positions(self) -> set[int]:
        return set()

    async def kept_positions(self) -> list[int]:
        return []

    async def skip(self, position: int, _reason: str) -> None:
        self.tries.append(position)
        if len(self.tries) <= self._refused:
            raise JournalFull(Path("journal.sqlite"))

    async def add_group(self, *, position: int, **_group: Any) -> int:
        await self.skip(position, "")
        self.storing += 1
        await self.gate.wait()
        self.accepted += 1
        return self.accepted


ONE_BY_ONE = {"groups_per_step": 1, "group_size": 1}


async def test_a_group_counts_at_every_moment(serving: Serving) -> None:
    """Between in flight and accepted there is no moment in which it is neither: at staleness 0
    that would let a trajectory of the next batch start under this batch's weights."""
    journal = JournalDouble()
    async with serving(journal, **ONE_BY_ONE) as lane:
        await lane.settled(1)
        lane.finish.set()
        await until(lambda: journal.storing == 1, "the group's storing")
        lane.lane.changed()
        await lane.settled(1)
        journal.gate.set()
        await until(lambda: journal.accepted == 1, "the group")
        await lane.settled(1)
        lane.lane.changed(1)
        await lane.settled(2)


async def test_a_full_disk_stops_admissions_and_loses_no_group(
    serving: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(train, "FULL_SECONDS", 0.05)
    journal = JournalDouble(refused=2)
    journal.gate.set()
    async with serving(journal, **ONE_BY_ONE) as lane:
        await until(lambda: lane.admitted == [0], "the batch's only group")
        lane.finish.set()
        await until(lambda: lane.lane.full, "the full disk")
        lane.lane.changed(1)
        await holds_for(0.01, lambda: lane.admitted == [0], "no more groups")
        assert lane.admitted == [0]
        await until(lambda: journal.accepted == 2, "room, and the next version's group")
        assert lane.admitted == [0, 1]
        assert not lane.lane.full


async def test_a_full_disk_does_not_end_the_run_at_a_bad_row(
    serving: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(train, "FULL_SECONDS", 0.02)
    journal = JournalDouble(refused=2)
    journal.gate.set()
    async with serving(journal, **ONE_BY_ONE, source=Positions(bad={0})) as lane:
        await until(lambda: lane.admitted == [1], "the group after the bad row")
        assert journal.tries == [0, 0, 0]
        assert not lane.lane.full


async def test_a_place_of_a_finished_member_lets_the_next_group_in(serving: Serving) -> None:
    """Fifteen of sixteen are done and the last one is slow: its group holds one place."""
    async with serving(max_concurrent=16, group_size=16, groups_per_step=2, ends=range(15)) as lane:
        await lane.settled(2)
        await until(lambda: lane.places.used == 2, "the two slow ones")


@pytest.mark.parametrize(
    ("source", "words"),
    [
        (Positions(bad=range(9)), "more than engine.max_bad_rows = 3"),
        # Its rows come again in every epoch, and each is counted once.
        (Positions(bad=range(10**6), rows=3), "no row of the task source can be used"),
    ],
)
async def test_bad_rows_alone_end_the_run(tmp_path: Path, source: Positions, words: str) -> None:
    journal = Journal(tmp_path / "j.sqlite")
    lane = Lane(journal, source=source, max_bad_rows=3)
    with pytest.raises(ExceptionGroup) as ended:
        async with asyncio.timeout(20):
            await lane.lane.run()
    assert words in str(ended.value.exceptions[0])
    await journal.close()


@pytest.mark.parametrize(
    ("newest", "accepted", "going_on"),
    [
        (None, 0, [0, 1, 2, 3]),
        (0, 4, [0, 1]),  # two groups more fit into the batch of four
        (0, 8, []),  # the learner went back: the bound lets nothing in before its next publish
        (1, 8, [0, 1, 2, 3]),
    ],
)
async def test_sessions_go_on_of_groups_that_are_admitted_at_once(
    newest: int | None, accepted: int, going_on: list[int]
) -> None:
    """Else they hold room of a tool service for which the next publish's evaluation waits."""
    version = newest if newest is None else (WeightVersion(lineage="a", step=newest), Path())
    prompt = Opened(sessions=(), prompt=ids([1]), sampling=SamplingParams())

    async def open_logs() -> dict[str, OpenLog]:
        names = [f"g{position:07d}-{index}" for position in range(6) for index in range(2)]
        return {name: OpenLog(attempt=f"{name}/b1r0a0", events=[prompt]) for name in names}

    async def newest_version() -> object:
        return version

    counts = GroupCounts(
        accepted=accepted, waiting=0, dropped_groups=0, last_sequence=0, durable_sequence=0
    )
    journal = SimpleNamespace(
        open_logs=open_logs,
        newest_version=newest_version,
        counts=counts,
        append=lambda *_: None,
        forget=lambda _: None,
    )
    found = await Lane(journal).lane.resume()
    assert sorted(found) == [
        f"g{position:07d}-{index}/b1r0a0" for position in going_on for index in range(2)
    ]
