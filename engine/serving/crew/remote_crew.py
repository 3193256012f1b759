"""The crew of a coordinator: groups and rows of evaluations, each at a worker.

Invariants
- An assignment whose worker dies goes to another one, with what is durable, until it is over.
- Places stay with the coordinator, so `max_concurrent` holds for all workers together.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from engine.core.rollout.assignment import Assignment, RolloutContext
from engine.errors import TaskUnfit
from engine.serving.admission.places import Places
from engine.serving.crew.crew import GroupAssignment
from engine.serving.crew.place_grants import PlaceGrants
from engine.serving.crew.worker_link import RemoteMember, WorkerLost
from engine.serving.crew.workers import Workers
from engine.serving.journal.logs import OpenLog
from toolwright import wire
from toolwright.crew.v1 import crew_pb2 as pb
from toolwright.recipe import Limits
from toolwright.types import WeightVersion


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteCrew:
    """A `Crew` for one task of the recipe."""

    task: str
    """Its name in the recipe; "" for a single task."""
    rollout_context: RolloutContext
    """The coordinator's own, for its rules."""
    workers: Workers
    places: Places
    limits: Limits | None = None
    """Limits of a suite; None = those of training."""

    def of_suite(self, limits: Limits) -> RemoteCrew:
        """The crew of an evaluation suite, which has its own limits."""
        return replace(self, limits=limits)

    async def run_group(self, group: GroupAssignment) -> list[RemoteMember]:
        trajectories = [f"{group.group_id}-{index}" for index in range(group.size)]
        logs: Mapping[str, OpenLog] = {}
        if any(name in group.earlier for name in trajectories):
            for name in trajectories:
                group.earlier.pop(name, None)
            logs = await self.workers.open_logs(trajectories)
        grants = PlaceGrants(self.places)
        try:
            while True:
                try:
                    return await self._run_group(group, trajectories, logs, grants)
                except WorkerLost as lost:
                    logs = lost.logs
                    await grants.withdraw()
        finally:
            await grants.close()
            group.queued.set()

    async def _run_group(
        self,
        group: GroupAssignment,
        trajectories: list[str],
        logs: Mapping[str, OpenLog],
        grants: PlaceGrants,
    ) -> list[RemoteMember]:
        requested = grants.requested(group.size, logs)
        drawn = group.drawn
        _, assigned = await self.workers.assign(
            pb.Assignment(
                recipe_task=self.task,
                task=wire.task_to_proto(drawn.task),
                sampling=wire.sampling_to_proto(group.sampling),
                media=[wire.blob_to_proto(one.blob) for one in drawn.media],
                group=pb.Group(
                    group_id=group.group_id,
                    size=group.size,
                    iteration=group.iteration,
                    places=requested,
                ),
            ),
            logs,
            trajectories=trajectories,
            media=drawn.media,
            grants=grants,
            queued=group.queued.set,
        )
        try:
            if requested > grants.held:
                grants.want(requested - grants.held)
                await asyncio.sleep(0)  # each takes a place or its turn
                group.queued.set()
            members = await assigned.outcome
        except TaskUnfit:
            self.workers.over(assigned)
            raise
        self.workers.over(assigned)
        return members

    async def run_row(
        self, row: Assignment, *, number: int, version: WeightVersion, sampled: Callable[[], None]
    ) -> tuple[RemoteMember, str]:
        limits = self.limits or self.rollout_context.rules.limits
        while True:
            link, assigned = await self.workers.assign(
                pb.Assignment(
                    recipe_task=self.task,
                    task=wire.task_to_proto(row.task),
                    sampling=wire.sampling_to_proto(row.sampling),
                    media=[wire.blob_to_proto(one.blob) for one in row.media],
                    row=pb.EvaluationRow(
                        trajectory_id=row.trajectory_id,
                        group_id=row.group_id,
                        index=row.index,
                        withhold_observations=row.withhold_observations,
                        number=number,
                        version=wire.version_to_proto(version),
                        limits_json=limits.model_dump_json(),
                    ),
                ),
                {},
                media=row.media,
                sampled=sampled,
            )
            try:
                (member,) = await assigned.outcome
            except WorkerLost:
                continue
            except asyncio.CancelledError:
                self.workers.cut(link, assigned)
                raise
            return member, member.why
