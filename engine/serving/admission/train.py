"""The train lane: admits groups while the capacity formula allows, and journals whole groups.

Invariants
- Every admitted group is journaled exactly once, is skipped with a log line, or goes on after a
  restart.
- Trajectories of incomplete groups plus accepted ones never exceed (eta + v + 1) * B; evaluation
  counts in neither.
- At most `max_concurrent` members are in flight. A group is admitted when one of its members finds
  a place at once.
- Position i of the task source is group i, in this life and the next. With several tasks each has
  its source, and `mixing` assigns groups to tasks.
- A task without a submitted question waits for one, and so do the groups of other tasks after it.
- A group that waits for its place in a batch holds no place in flight. It goes on after a restart,
  because its log is journaled.
- A group that dynamic sampling discards is journaled and not accepted. Its place in the bound is
  free, so as many groups are sampled as a batch lacks, and never a surplus.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import count
from typing import TypeVar

import structlog

from engine.core.tasks import BadRow, BadRows, TaskSource
from engine.core.trajectory.log import AttemptLog
from engine.errors import StartupError, TaskUnfit
from engine.serving.admission.capacity import staleness_room
from engine.serving.admission.dynamic_sampling import GroupFilter
from engine.serving.admission.mixing import Mixture
from engine.serving.admission.places import Places
from engine.serving.admission.submitted import SubmittedTasks
from engine.serving.crew.crew import Crew, Finished, GroupAssignment
from engine.serving.crew.earlier_logs import earlier_logs
from engine.serving.journal.journal import GroupCounts, Journal, JournalFull
from engine.serving.telemetry.event_feed import Happened, unheard
from toolwright.recipe import Run
from toolwright.types import SamplingParams, Status, Trajectory
from toolwright.wire import serialize, trajectory_to_proto

FULL_SECONDS = 5.0
"""Interval between checks of a full disk."""

ADMITTED_AT_ONCE = 32
ADMISSION_PAUSE_S = 0.01
"""Pause after so many admissions in a row, so that trajectories in flight go on between them. On a
busy loop the pause is longer by itself."""

log = structlog.get_logger("scheduler")

Answer = TypeVar("Answer")
OnTrajectory = Callable[[Trajectory], None]


class TrainLane:
    """Owns every training trajectory in flight. Call `changed` after a publish or
    acknowledgement."""

    def __init__(
        self,
        *,
        run: Run,
        steps: int,
        crews: Mapping[str, Crew],
        places: Places,
        sources: Mapping[str, TaskSource | SubmittedTasks],
        mixture: Mixture,
        journal: Journal,
        sampling: SamplingParams,
        bad_rows: BadRows,
        on_trajectory: OnTrajectory,
        group_filter: GroupFilter | None = None,
        happened: Happened = unheard,
    ) -> None:
        """steps: of the whole run. crews, sources: by the task's name, "" for a single task.
        places: those that all crews share. group_filter: dynamic sampling, if the recipe has it.
        """
        self._run = run
        self._steps = steps
        self._crews = crews
        self._places = places
        self._sources = sources
        self._mixture = mixture
        self._journal = journal
        self._sampling = sampling
        self._bad_rows = bad_rows
        self._on_trajectory = on_trajectory
        self._happened = happened
        self._group_filter = group_filter
        self._told_fruitless = False
        self._drained = asyncio.Event()
        self._wake = asyncio.Event()
        self._waiting_for_disk = False
        self._earlier: dict[str, AttemptLog] = {}
        self.arrived = asyncio.Condition()
        self.admitted = 0
        """Trajectories of incomplete groups."""
        self._passed_over: Counter[str] = Counter()
        """Number of unusable positions in a row, by task."""
        self._held = 0
        """Number of groups that wait for their place in a batch."""
        self._moved = asyncio.Event()
        self._run_name = ""
        """The run's first lineage."""
        self.step = 0
        self.waits_for_task = False
        """Whether a group has room and its task no submitted question."""
        places.on_free = self._wake.set
        for source in sources.values():
            if isinstance(source, SubmittedTasks):
                source.on_arrival = self._wake.set

    @property
    def counts(self) -> GroupCounts:
        return self._journal.counts

    @property
    def earlier_outside(self) -> list[AttemptLog]:
        """Attempts of outside agents, from an earlier life, whose groups are not complete."""
        return [log for log in self._earlier.values() if log.state.forest is not None]

    @property
    def running(self) -> int:
        """Trajectories in flight."""
        return self._places.used

    @property
    def full(self) -> bool:
        """Whether the disk is full: nothing is admitted."""
        return self._waiting_for_disk or self._journal.full

    @property
    def fruitless(self) -> str:
        """Why nothing is admitted although there is room, as a sentence; "" otherwise."""
        return self._group_filter.fruitless if self._group_filter is not None else ""

    @property
    def ends_fruitless(self) -> bool:
        """Whether sampling has stopped and nothing in flight could change that: no group will
        come."""
        return self.admitted == self._held * self._run.group_size and bool(self.fruitless)

    async def resume(self) -> set[str]:
        """Continues from what an earlier life left. Returns the attempts whose sessions go on.

        They belong to groups that are admitted at once. A later group's session would hold room of
        its tool service until the next publish, which may itself wait for that room.
        """
        open_logs = await self._journal.open_logs()
        self._earlier |= earlier_logs(open_logs, self._journal.append, self._journal.forget)
        newest = await self._journal.newest_version()
        room = self._capacity_at(0 if newest is None else newest[0].step)
        groups = sorted({_group_of(trajectory_id) for trajectory_id in self._earlier})
        admitted = set(groups[: max(0, room // self._run.group_size)])
        return {
            one.attempt
            for trajectory_id, one in self._earlier.items()
            if one.state.ended is None and _group_of(trajectory_id) in admitted
        }

    async def run(self) -> None:
        """Admits until drained; returns when the last admitted group is journaled."""
        positions = await self._open_positions()
        heads = {name: next(unfinished) for name, unfinished in positions.items()}
        for name, position in heads.items():
            if isinstance(source := self._sources[name], SubmittedTasks):
                source.resume(self._mixture.task_of(position)[1])
        self._run_name = await self._journal.first_lineage()
        if self._group_filter is not None:
            kept, turned_away = await self._journal.batch_progress(self._run.groups_per_step)
            self._group_filter.resume(kept=kept, turned_away=turned_away)
        burst = 0
        async with asyncio.TaskGroup() as groups:
            while not self._draining:
                position = heads[self._mixture.next_task()]
                room = not self.full and self._places.free > 0 and self._room()
                self.waits_for_task = room and not self._has_task(position)
                if room and not self.waits_for_task:
                    name = self._mixture.admit()
                    heads[name] = next(positions[name])
                    group = await self._drawn(position)
                    if group is None:
                        self._mixture.give_back(name)
                        continue
                    self.admitted += self._run.group_size
                    self._happened("admitted", group=group.group_id, task=group.drawn.task.id)
                    groups.create_task(self._finish(position, group))
                    await group.queued.wait()
                    burst += self._run.group_size
                    if burst >= ADMITTED_AT_ONCE:
                        burst = 0
                        await asyncio.sleep(ADMISSION_PAUSE_S)
                else:
                    burst = 0
                    await self._change()
        if self._bad_rows.count:
            log.warning("bad_rows", summary=self._bad_rows.summary())

    async def _change(self) -> None:
        """Waits for a change that admissions depend on. A full disk sends no signal when it has
        room again."""
        self._wake.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(FULL_SECONDS if self.full else None):
                await self._wake.wait()

    @property
    def _draining(self) -> bool:
        return self._drained.is_set()

    def capacity(self) -> int:
        """Trajectories that the staleness bound still admits. The lane samples nothing beyond the
        run's last step."""
        return self._capacity_at(self.step)

    def _capacity_at(self, step: int) -> int:
        run = self._run
        last = max(self._steps - 1 - run.max_staleness, -1 - run.max_staleness)
        return staleness_room(
            eta=run.max_staleness,
            version=min(step, last),
            batch=run.batch,
            accepted=self.counts.accepted,
            running=self.admitted,
        )

    def _room(self) -> bool:
        return self.capacity() >= self._run.group_size and not self.fruitless

    def _has_task(self, position: int) -> bool:
        name, own = self._mixture.task_of(position)
        source = self._sources[name]
        return not isinstance(source, SubmittedTasks) or source.has(own)

    def drain(self) -> None:
        """Stops admissions; `run` returns once all trajectories in flight are done."""
        self._drained.set()
        self._wake.set()
        self._moved.set()

    def changed(self, step: int | None = None) -> None:
        """Checks admissions again after a publish, an acknowledgement or a drop."""
        if step is not None:
            self.step = step
        self._wake.set()

    async def _open_positions(self) -> dict[str, Iterator[int]]:
        """Unfinished positions of each task, in order."""
        finished = await self._journal.finished_positions()
        self._mixture.resume(await self._journal.kept_positions())

        def unfinished(name: str) -> Iterator[int]:
            every = (self._mixture.position(name, own) for own in count())
            return (position for position in every if position not in finished)

        return {name: unfinished(name) for name in self._sources}

    async def _drawn(self, position: int) -> GroupAssignment | None:
        """The group of a position; None if its task cannot be used. Called in each task's order,
        because a function as a source is only walked forward."""
        name, own = self._mixture.task_of(position)
        try:
            found = await self._sources[name].at(own)
        except BadRow as error:
            await self._pass_over(position, error)
            return None
        drawn = replace(found, task=replace(found.task, name=name))
        return GroupAssignment(
            group_id=f"g{position:07d}",
            drawn=drawn,
            sampling=self._sampling,
            size=self._run.group_size,
            earlier=self._earlier,
            drained=self._drained,
            iteration=f"{self._run_name}.{self.step}" if self._run_name else "",
        )

    async def _finish(self, position: int, group: GroupAssignment) -> None:
        name, _own = self._mixture.task_of(position)
        try:
            members = await self._crews[name].run_group(group)
            if members and await self._has_place(name):
                self._passed_over[name] = 0
                await self._store(position, members)
        except TaskUnfit as error:
            self._mixture.give_back(name)
            await self._pass_over(position, group.drawn.refused("unfit", str(error)))
        finally:
            self.admitted -= self._run.group_size
            self._wake.set()
        async with self.arrived:
            self.arrived.notify_all()

    async def _has_place(self, name: str) -> bool:
        """Waits until a group of the task has its place in the batch that is being filled. False if
        the engine drains before that."""
        self._held += 1
        try:
            while not self._mixture.reserve(name):
                if self._draining:
                    return False
                self._moved.clear()
                await self._moved.wait()
            return True
        finally:
            self._held -= 1

    async def _pass_over(self, position: int, error: BadRow) -> None:
        """Skips a position. Raises StartupError if that exceeds the limit of bad rows, or if a
        whole pass over the source found no usable row. Submitted tasks do not count."""
        await self._written(partial(self._journal.skip, position, str(error)))
        self._happened("skipped", task=error.task_id, reason=error.reason)
        name, _own = self._mixture.task_of(position)
        source = self._sources[name]
        if isinstance(source, SubmittedTasks):
            log.warning("task_unfit", **error.fields)
            return
        if self._bad_rows.add(error):
            log.warning("bad_row", **error.fields)
        if self._bad_rows.exceeded:
            raise StartupError(self._bad_rows.sentence())
        self._passed_over[name] += 1
        if source.rows is not None and self._passed_over[name] >= source.rows:
            whose = f" of tasks.{name}" if name else ""
            raise StartupError(f"no row of the task source{whose} can be used; the last is {error}")

    async def _store(self, position: int, members: Sequence[Finished]) -> None:
        trajectories = [member.trajectory for member in members]
        for trajectory in trajectories:
            self._on_trajectory(trajectory)
        errored = sum(t.status is Status.ERRORED for t in trajectories)
        if errored:
            log.warning("group_lost_members", group=trajectories[0].group_id, members=errored)
        turned_away = self._group_filter is not None and self._group_filter.turns_away(trajectories)
        if turned_away:
            self._mixture.release(trajectories[0].task.name)
            log.info("group_turned_away", group=trajectories[0].group_id, why="no signal")
        if self.fruitless and not self._told_fruitless:
            log.error("fruitless", reason=self.fruitless)
        self._told_fruitless = bool(self.fruitless)
        versions = list(dict.fromkeys(v for t in trajectories for v in t.weight_versions))
        records = [
            member.serialized or serialize(trajectory_to_proto(trajectory))
            for member, trajectory in zip(members, trajectories, strict=True)
        ]
        sequence = await self._written(
            partial(
                self._journal.add_group,
                position=position,
                identity=trajectories[0].group_id,
                members=records,
                attempts=[member.attempt for member in members],
                versions=versions,
                turned_away=turned_away,
            )
        )
        self._happened(
            "stored", group=trajectories[0].group_id, sequence=sequence, turned_away=turned_away
        )
        if not turned_away:
            self._mixture.store()
        self._moved.set()

    async def _written(self, write: Callable[[], Awaitable[Answer]]) -> Answer:
        """Returns when the journal has it. While the disk is full nothing is admitted."""
        while True:
            try:
                answer = await write()
            except JournalFull as error:
                first, self._waiting_for_disk = not self._waiting_for_disk, True
                if first:
                    log.warning("disk_full", error=str(error), fix="free space; the run goes on")
                await asyncio.sleep(FULL_SECONDS)
            else:
                self._waiting_for_disk = False
                return answer


def _group_of(trajectory_id: str) -> str:
    """'g0000012' of 'g0000012-3'. Groups sort by their positions."""
    return trajectory_id.rpartition("-")[0]
