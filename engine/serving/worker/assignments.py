"""The assignments in progress on a worker: each a task of the crew of this process.

Invariants
- Each assignment is begun once. Numbers grow in the order of arrival; a new stream repeats them in
  that order.
- The end of each is reported, unless the worker stops. The coordinator takes no report of a lost
  worker, so an assignment that another worker has now is not reported twice.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from functools import partial

import structlog

from engine.core.images.media import Media
from engine.core.rollout.assignment import Assignment
from engine.core.tasks import DrawnTask
from engine.errors import TaskUnfit
from engine.serving.crew.crew import Finished, GroupAssignment
from engine.serving.crew.earlier_logs import ArrivingLogs, earlier_logs
from engine.serving.crew.in_process import InProcessCrew
from engine.serving.worker.group_places import GroupPlaces
from engine.serving.worker.reports import MOST_ROW, Reports
from toolwright import wire
from toolwright.crew.v1 import crew_pb2 as pb
from toolwright.recipe import Limits
from toolwright.types import Task, Trajectory

log = structlog.get_logger("worker")


class Assignments:
    """The assignments of one worker, by the coordinator's numbers."""

    def __init__(
        self,
        crews: Mapping[str, InProcessCrew],
        reports: Reports,
        blob: Callable[[str], Awaitable[bytes | None]],
    ) -> None:
        """crews: by the names of the recipe's tasks. blob: reads bytes from the coordinator."""
        self._crews = crews
        self._reports = reports
        self._blob = blob
        self._drained = asyncio.Event()
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._places: dict[int, GroupPlaces] = {}
        self._newest = 0
        """Number of the last assignment that was begun."""
        self._cut: set[int] = set()
        """Assignments that end because they were cut."""
        self._arriving = ArrivingLogs()

    @property
    def running(self) -> int:
        """Number of assignments in progress."""
        return len(self._tasks)

    def earlier(self, piece: pb.EarlierLog) -> None:
        """Takes a piece of a log that an assignment goes on from. A new stream repeats them all."""
        if piece.assignment > self._newest:
            self._arriving.take(piece)

    def begin(self, message: pb.Assignment) -> None:
        """Begins an assignment. The same one again is ignored."""
        if message.id <= self._newest:
            return
        self._newest = message.id
        if message.HasField("group"):
            self._places[message.id] = GroupPlaces(
                message.group.places, partial(self._reports.places, message.id)
            )
        work = self._group(message) if message.HasField("group") else self._row(message)
        task = self._tasks[message.id] = asyncio.get_running_loop().create_task(work)
        task.add_done_callback(partial(self._ended, message.id))

    def grant(self, message: pb.Places) -> None:
        """Hands places to a group."""
        if (places := self._places.get(message.assignment)) is not None:
            places.grant(message.granted)

    def cut(self, number: int) -> None:
        """Ends an assignment that the coordinator has dropped, and reports the end."""
        if number in self._cut:
            return
        if (task := self._tasks.get(number)) is not None:
            self._cut.add(number)
            task.cancel()
        else:  # it has ended, or has never come
            self._reports.ended(number)

    def drain(self) -> None:
        """Groups that infrastructure failed are not rolled out again."""
        self._drained.set()

    async def stop(self) -> None:
        """Cancels everything."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _ended(self, number: int, task: asyncio.Task[None]) -> None:
        del self._tasks[number]
        self._places.pop(number, None)
        if number in self._cut:
            self._cut.discard(number)
            if not task.cancelled():
                task.exception()  # retrieved: it matters no more
            self._reports.ended(number)
            return
        if task.cancelled() or (error := task.exception()) is None:
            return
        if isinstance(error, TaskUnfit):
            self._reports.ended(number, unfit=str(error))
            return
        log.error("assignment_failed", assignment=number, exc_info=error)
        self._reports.ended(number, defect=f"{type(error).__name__}: {error}")

    async def _task_of(self, message: pb.Assignment) -> tuple[Task, tuple[Media, ...]]:
        media = [await self._media(wire.blob_from_proto(ref).sha256, ref) for ref in message.media]
        return wire.task_from_proto(message.task), tuple(media)

    async def _media(self, sha256: str, ref: object) -> Media:
        data = await self._blob(sha256)
        if data is None:
            raise RuntimeError(f"the coordinator has no media {sha256} of a task that it assigned")
        return Media(blob=wire.blob_from_proto(ref), data=data)  # type: ignore[arg-type]

    async def _group(self, message: pb.Assignment) -> None:
        task, media = await self._task_of(message)
        group = message.group
        found = self._arriving.pop(message.id)
        queued = asyncio.Event()
        assignment = GroupAssignment(
            group_id=group.group_id,
            drawn=DrawnTask(position=0, task=task, media=media),
            sampling=wire.sampling_from_proto(message.sampling),
            size=group.size,
            earlier=earlier_logs(found, self._reports.append, self._reports.forget),
            iteration=group.iteration,
            queued=queued,
            drained=self._drained,
            places=self._places[message.id],
        )
        reporting = None
        if found:
            reporting = asyncio.create_task(self._report_queued(message.id, queued))
        try:
            result = await self._crew(message).run_group(assignment)
        finally:
            if reporting is not None:
                reporting.cancel()
        self._reports.ended(message.id, [_member(message.id, one, "") for one in result])

    def _crew(self, message: pb.Assignment) -> InProcessCrew:
        return replace(self._crews[message.recipe_task], fence=message.fence)

    async def _report_queued(self, number: int, queued: asyncio.Event) -> None:
        await queued.wait()
        self._reports.queued(number)

    async def _row(self, message: pb.Assignment) -> None:
        task, media = await self._task_of(message)
        row = message.row
        crew = self._crew(message).of_suite(Limits.model_validate_json(row.limits_json))
        member, why = await crew.run_row(
            Assignment(
                trajectory_id=row.trajectory_id,
                group_id=row.group_id,
                index=row.index,
                task=task,
                sampling=wire.sampling_from_proto(message.sampling),
                media=media,
                withhold_observations=row.withhold_observations,
            ),
            number=row.number,
            version=wire.version_from_proto(row.version),
            sampled=partial(self._reports.sampled, message.id),
        )
        self._reports.ended(message.id, [_member(message.id, member, why)])


def _member(assignment: int, member: Finished, why: str) -> pb.Member:
    trajectory: Trajectory = member.trajectory
    record = wire.serialize(wire.trajectory_to_proto(trajectory))
    if len(record) > MOST_ROW:
        raise TaskUnfit(
            f"the record of {trajectory.id} has {len(record)} bytes, and a worker reports at most "
            f"{MOST_ROW}: lower the recipe's limits"
        )
    return pb.Member(assignment=assignment, attempt=member.attempt, record=record, why=why)
