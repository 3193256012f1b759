"""The train lane: admits groups while the capacity formula allows, and journals them whole.

Invariants
- Every admitted group is journaled exactly once, or is run again after a restart.
- Trajectories in flight plus accepted never exceed (eta + v + 1) * B (spec 6.8); evaluation
  counts in neither.
- Position i of the task source is group i, in this life and the next.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from itertools import count

import structlog

from engine.errors import StartupError
from engine.images.media import Media
from engine.journal.journal import Counts, Journal, JournalFull
from engine.lanes.capacity import staleness_capacity
from engine.rewards.rewards import Rewards
from engine.rollout.assignment import Assignment, Setting
from engine.rollout.attempts import run_trajectory
from engine.tasks import TaskSource
from toolwright.recipe import Run
from toolwright.types import SamplingParams, Status, Trajectory
from toolwright.wire import serialize, trajectory_to_proto

LONGEST_PAUSE = 30.0
"""Seconds before a group is run again that infrastructure failed as a whole."""
FULL_SECONDS = 5.0
"""Between tries to journal a group on a full disk."""

log = structlog.get_logger("scheduler")

OnTrajectory = Callable[[Trajectory], None]


def overlaid(recipe: SamplingParams, task: SamplingParams | None) -> SamplingParams:
    """The recipe's parameters, those that the task names replaced."""
    if task is None:
        return recipe
    named = {k: v for k, v in asdict(task).items() if v is not None}
    return replace(recipe, **named)


class TrainLane:
    """Owns every training trajectory in flight. Wake it with `changed` after a publish or ack."""

    def __init__(
        self,
        *,
        run: Run,
        setting: Setting,
        rewards: Rewards,
        source: TaskSource,
        journal: Journal,
        sampling: SamplingParams,
        max_concurrent: int,
        max_attempts: int,
        on_trajectory: OnTrajectory,
    ) -> None:
        self._run = run
        self._setting = setting
        self._rewards = rewards
        self._source = source
        self._journal = journal
        self._sampling = sampling
        self._max_concurrent = max(max_concurrent, run.group_size)
        self._max_attempts = max_attempts
        self._on_trajectory = on_trajectory
        self._drained = asyncio.Event()
        self._wake = asyncio.Event()
        self.full = False
        self.arrived = asyncio.Condition()
        self.running = 0
        self.step = 0
        self.counts = Counts(
            accepted=0, waiting=0, dropped_groups=0, last_sequence=0, durable_sequence=0
        )

    async def run(self) -> None:
        """Admits until drained; returns when the last admitted group is journaled."""
        positions = await self._open_positions()
        await self.changed()
        async with asyncio.TaskGroup() as groups:
            while not self._draining:
                if not self.full and self.capacity() >= self._run.group_size:
                    self.running += self._run.group_size
                    groups.create_task(self._group(next(positions)))
                    await asyncio.sleep(0)
                else:
                    self._wake.clear()
                    await self._wake.wait()

    @property
    def _draining(self) -> bool:
        return self._drained.is_set()

    def capacity(self) -> int:
        """Trajectories that may start now. Nothing beyond the run's last step is sampled."""
        run = self._run
        last = max(run.steps - 1 - run.max_staleness, -1 - run.max_staleness)
        return staleness_capacity(
            eta=run.max_staleness,
            version=min(self.step, last),
            batch=run.batch,
            max_concurrent=self._max_concurrent,
            accepted=self.counts.accepted,
            running=self.running,
        )

    def drain(self) -> None:
        """No more admissions; `run` returns once what is in flight is done."""
        self._drained.set()
        self._wake.set()

    async def changed(self, step: int | None = None) -> None:
        """A publish, an acknowledgement or a drop: look again what may start."""
        if step is not None:
            self.step = step
        self.counts = await self._journal.counts()
        self._wake.set()

    async def _open_positions(self) -> Iterator[int]:
        finished = await self._journal.finished_positions()
        return (position for position in count() if position not in finished)

    async def _group(self, position: int) -> None:
        try:
            trajectories, shown = await self._survivors(position)
            if trajectories:
                await self._store(position, trajectories, shown)
        finally:
            # One step: between the two the group would count in neither, and one more than the
            # formula allows could start.
            counts = await self._journal.counts()
            self.running -= self._run.group_size
            self.counts = counts
            self._wake.set()
        async with self.arrived:
            self.arrived.notify_all()

    async def _survivors(self, position: int) -> tuple[list[Trajectory], dict[str, Media]]:
        """The group with its images, run again with growing pauses while infrastructure fails all
        of it.

        Empty when the engine drains meanwhile: the position stays open. StartupError when every
        member was refused for good: no other run of this recipe would get further.
        """
        for round_ in count():
            shown: dict[str, Media] = {}
            trajectories = await self._roll_out(position, round_, shown)
            if any(t.status is not Status.ERRORED for t in trajectories):
                return trajectories, shown
            pause = min(LONGEST_PAUSE, 2.0**round_)
            event = trajectories[0].events[-1].data
            if all(t.events[-1].data.get("permanent") for t in trajectories):
                raise StartupError(f"task {trajectories[0].task.id}: {event['error']}")
            log.error("group_failed", group=trajectories[0].group_id, again_in_s=pause, **event)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._drained.wait()
            if self._draining:
                break
        return [], {}

    async def _roll_out(
        self, position: int, round_: int, shown: dict[str, Media]
    ) -> list[Trajectory]:
        task = self._source.at(position)
        media = self._source.media(task)
        group_id = f"g{position:07d}"
        async with asyncio.TaskGroup() as members:
            rollouts = [
                members.create_task(
                    run_trajectory(
                        self._setting,
                        Assignment(
                            trajectory_id=f"{group_id}-{index}",
                            group_id=group_id,
                            index=index,
                            attempt=f"b{self._journal.boot}r{round_}a",
                            task=task,
                            media=media,
                            shown=shown,
                            sampling=overlaid(self._sampling, task.sampling),
                        ),
                        max_attempts=self._max_attempts,
                    )
                )
                for index in range(self._run.group_size)
            ]
        return await self._rewards.score([rollout.result() for rollout in rollouts])

    async def _store(
        self, position: int, trajectories: list[Trajectory], shown: dict[str, Media]
    ) -> None:
        for trajectory in trajectories:
            self._on_trajectory(trajectory)
        errored = sum(t.status is Status.ERRORED for t in trajectories)
        if errored:
            log.warning("group_lost_members", group=trajectories[0].group_id, members=errored)
        members = [serialize(trajectory_to_proto(t)) for t in trajectories]
        versions = list(dict.fromkeys(v for t in trajectories for v in t.weight_versions))
        blobs = {ref.blob.sha256 for t in trajectories for ref in t.shown_media}
        while True:
            try:
                await self._journal.add_group(
                    position=position,
                    identity=trajectories[0].group_id,
                    members=members,
                    versions=versions,
                    blobs=[shown[name] for name in sorted(blobs)],
                )
            except JournalFull as error:
                first, self.full = not self.full, True
                if first:
                    log.warning("disk_full", error=str(error), mend="free space; the run goes on")
                await asyncio.sleep(FULL_SECONDS)
            else:
                self.full = False
                return
