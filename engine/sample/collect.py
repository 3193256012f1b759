"""Rolls tasks out, K trajectories each, and decides task by task what stays.

Invariants
- Tasks are drawn one at a time; what is held are the trajectories of the tasks in progress, which
  are never more than fill the places twice.
- A task is decided when all its trajectories are scored, and written before it is forgotten.
- A task that infrastructure fails whole waits for it: nothing is passed over for an outage.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import structlog

from engine.errors import EngineError, StartupError, TaskUnfit
from engine.lanes.group import GroupRun, Lane, Member
from engine.lanes.train import overlaid
from engine.protocols.chat import Chat
from engine.protocols.tagged import Tagged
from engine.rollout.record import with_texts
from engine.sample.choice import Candidate, Verdict, choose, mark_of
from engine.sample.keep import Keep
from engine.sample.messages import Untellable, conversation_of
from engine.sample.store import Decided, Store
from engine.tasks import BadRow, BadRows, TaskSource
from engine.tasks.source import SourceEnded
from toolwright.types import Author, SamplingParams, Status, Trajectory, WeightVersion

log = structlog.get_logger("sample")


class TooManyBadRows(EngineError):
    """More rows than engine.max_bad_rows cannot be used."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """n: tasks, the first of the source; None = all rows of a file. per_task: trajectories of each.
    most_per_task: that may be kept; None = all. keep: None = all that are neither errored nor
    masked. version: what the samplers serve."""

    n: int | None
    per_task: int
    most_per_task: int | None
    keep: Keep | None
    sampling: SamplingParams
    version: WeightVersion
    max_bad_rows: int


class Collector:
    """Run it once. `total`: tasks that the plan has."""

    def __init__(self, lane: Lane, source: TaskSource, store: Store, plan: Plan) -> None:
        """StartupError when the source has fewer tasks than the plan, or no end and the plan
        names no number."""
        self._lane = lane
        self._source = source
        self._store = store
        self._plan = plan
        self._bad_rows = BadRows(plan.max_bad_rows)
        self.tokens = 0
        rows = source.rows
        total = rows if plan.n is None else plan.n
        if total is None:
            raise StartupError("--n: a task function has no end; say how many tasks")
        if rows is not None and total > rows:
            raise StartupError(f"--n {total}: {source.identity.name} has {rows} rows")
        self.total = total
        groups = max(2, 2 * lane.places.limit // plan.per_task)
        self._groups = asyncio.Semaphore(groups)

    @property
    def in_flight(self) -> int:
        return self._lane.places.used

    async def run(self) -> None:
        """Until every task is decided. EngineError where it cannot go on; what is decided stays."""
        async with asyncio.TaskGroup() as group:
            for position in range(self.total):
                if self._store.is_decided(position):
                    continue
                await self._groups.acquire()
                group.create_task(self._one(position, await self._draw(position)))

    async def _draw(self, position: int) -> Any:
        try:
            return await self._source.at(position)
        except SourceEnded as error:
            raise StartupError(f"--n {self.total}: {error}") from error
        except BadRow as bad:
            return bad

    async def _one(self, position: int, drawn: Any) -> None:
        try:
            if isinstance(drawn, BadRow):
                return await self._pass_over(position, drawn)
            run = GroupRun(
                self._lane,
                group_id=f"s{position:07d}",
                drawn=drawn,
                sampling=overlaid(self._plan.sampling, drawn.task.sampling),
                size=self._plan.per_task,
                earlier={},
                drained=asyncio.Event(),
            )
            try:
                members = await run.run()
            except TaskUnfit as error:
                return await self._pass_over(position, drawn.refused("unfit", str(error)))
            await self._decide(position, members)
        finally:
            self._groups.release()

    async def _pass_over(self, position: int, bad: BadRow) -> None:
        log.warning("row_passed_over", **bad.fields)
        self._bad_rows.add(bad)
        if self._bad_rows.exceeded:
            raise TooManyBadRows(self._bad_rows.sentence())
        await self._store.add(Decided(position=position, task_id=bad.task_id, bad=str(bad)))

    async def _decide(self, position: int, members: list[Member]) -> None:
        candidates = [await self._candidate(member) for member in members]
        # Nothing is awaited between the choice and the marks: two tasks may be duplicates.
        verdicts = choose(candidates, self._store.seen, self._plan.most_per_task)
        kept = [m for m, v in zip(members, verdicts, strict=True) if v is Verdict.KEPT]
        marks = [c.mark for c, v in zip(candidates, verdicts, strict=True) if v is Verdict.KEPT]
        self._store.seen.update(marks)
        conversations, untold = self._told(kept) if self._store.exported else ([], [])
        await self._store.add(
            Decided(
                position=position,
                task_id=members[0].identity.task.id,
                verdicts=verdicts,
                marks=marks,
                kept=[member.trajectory for member in kept],
                conversations=conversations,
                untold=untold,
            )
        )

    async def _candidate(self, member: Member) -> Candidate:
        state, trajectory = member.log.state, member.trajectory
        self.tokens += trajectory.response_tokens
        _check_versions(trajectory, self._plan.version)
        errored = trajectory.status is Status.ERRORED
        keep, wanted = self._plan.keep, True
        if keep is not None and not errored and not trajectory.masked:
            wanted = await keep.wants(with_texts(member.trajectory, member.log.state))
        prompt = next((s.token_ids for s in state.segments if s.author is Author.PROMPT), None)
        mark = "" if prompt is None else mark_of(prompt, (one.text for one in state.actions))
        return Candidate(errored=errored, masked=trajectory.masked, wanted=wanted, mark=mark)

    def _told(self, kept: list[Member]) -> tuple[list[Mapping[str, Any]], list[str]]:
        rules = self._lane.surroundings.rules
        protocol = rules.protocol
        assert isinstance(protocol, Chat | Tagged)  # the command has refused all others
        told: list[Mapping[str, Any]] = []
        untold: list[str] = []
        for member in kept:
            try:
                conversation = conversation_of(
                    member.log.state, member.identity.task, protocol, rules.codec
                )
            except Untellable as reason:
                untold.append(str(reason))
            else:
                told.append({"id": member.identity.trajectory_id, **conversation})
        return told, untold


def _check_versions(trajectory: Trajectory, version: WeightVersion) -> None:
    foreign = [str(one) for one in trajectory.weight_versions if one != version]
    if foreign:
        raise StartupError(
            f"{trajectory.id} was written by weights {', '.join(foreign)}, the samplers began with "
            f"{version}: nobody may publish to them meanwhile"
        )
