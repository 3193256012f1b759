"""Rolls tasks out, K trajectories each, and decides task by task which are kept.

Invariants
- Tasks are drawn one at a time. Memory holds the trajectories of tasks in progress, at most twice
  as many as there are places.
- A task is decided when all its trajectories are scored, and written before it is forgotten.
- A task whose attempts infrastructure fails is tried again: no task is skipped for an outage.
- When the token budget is used up, tasks in progress still end: their tokens are spent. The time
  budget drops them.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import structlog

from engine.core.protocols.chat import Chat
from engine.core.protocols.tagged import Tagged
from engine.core.rewards.score import REWARD_FAILED
from engine.core.tasks import BadRow, BadRows, TaskSource
from engine.core.tasks.source import SourceEnded
from engine.core.trajectory.record import with_texts
from engine.errors import EngineError, StartupError, TaskUnfit
from engine.offline.collect.budget import Budget, Spending
from engine.offline.collect.calls import canonical_calls, mark_of_calls
from engine.offline.collect.criteria import Criteria, excerpt_of
from engine.offline.collect.layouts import NotExportable, Row, export_row
from engine.offline.collect.messages import (
    conversation_of,
    functions_of,
    tools_of,
    with_tools,
)
from engine.offline.collect.selection import Candidate, SelectionOutcome, mark_of, select
from engine.offline.collect.store import DecidedTask, Store
from engine.offline.enums import Dedupe, ExportLayout
from engine.serving.crew.crew import GroupAssignment
from engine.serving.crew.in_process import InProcessCrew
from engine.serving.crew.member import Member
from engine.serving.evaluation.results import tokens_of
from toolwright.types import Author, SamplingParams, Status, Trajectory, WeightVersion

log = structlog.get_logger("sample")


class TooManyBadRows(EngineError):
    """More than engine.max_bad_rows rows cannot be used."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a collector does."""

    n: int | None
    """Number of tasks, from the first on; None = all rows of a file."""
    per_task: int
    """Trajectories of each task."""
    most_per_task: int | None
    """Most trajectories kept of a task; None = all."""
    criteria: Criteria | None
    dedupe: Dedupe
    budget: Budget
    sampling: SamplingParams
    version: WeightVersion
    """The version that the samplers serve."""
    max_bad_rows: int


class Collector:
    """One collection; `run` it once."""

    def __init__(
        self,
        crew: InProcessCrew,
        source: TaskSource,
        store: Store,
        plan: Plan,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """clock: seconds. Raises StartupError if the source has fewer tasks than the plan, or if it
        has no end and the plan has no number.
        """
        self._crew = crew
        self._source = source
        self._store = store
        self._plan = plan
        self._bad_rows = BadRows(plan.max_bad_rows)
        self._clock = clock
        self._began = clock()
        self._seconds_before = store.totals.seconds
        self._in_hand = 0
        self._one_less = asyncio.Event()
        """A task was decided."""
        self.spent_before = self.spent
        """Spending before this process."""
        self.ended_by = ""
        """The option whose budget ended the collection; "" otherwise."""
        rows = source.rows
        total = rows if plan.n is None else plan.n
        if total is None:
            raise StartupError("--n: a task function has no end: give the number of tasks")
        if rows is not None and total > rows:
            raise StartupError(f"--n {total}: {source.identity.name} has {rows} rows: lower --n")
        self.total = total
        """Number of tasks."""
        groups = max(2, 2 * crew.places.limit // plan.per_task)
        self._groups = asyncio.Semaphore(groups)

    @property
    def budget(self) -> Budget:
        return self._plan.budget

    @property
    def in_flight(self) -> int:
        return self._crew.places.used

    @property
    def spent(self) -> Spending:
        """Spending until now, earlier processes included."""
        totals = self._store.totals
        return Spending(
            tasks=totals.tasks - totals.bad_rows,
            tokens=totals.written,
            seconds=self._seconds_before + self._clock() - self._began,
        )

    async def run(self) -> None:
        """Returns when every task is decided or a budget is spent.

        Raises EngineError if it cannot go on; decided tasks stay.
        """
        limit = asyncio.timeout(self._plan.budget.seconds_left(self.spent))
        try:
            async with limit:
                await self._all()
        except TimeoutError:
            if not limit.expired():
                raise
            self.ended_by = f"--budget-seconds {self._plan.budget.seconds:g}"
        if self.ended_by:
            await self._store.add_seconds(self.spent.seconds)

    async def _all(self) -> None:
        async with asyncio.TaskGroup() as group:
            for position in range(self.total):
                if self._store.is_decided(position):
                    continue
                await self._groups.acquire()
                if not await self._find_room():
                    self.ended_by = f"--budget-tokens {self._plan.budget.tokens}"
                    break
                drawn = await self._draw(position)
                self._in_hand += 1
                group.create_task(self._one(position, drawn))

    async def _find_room(self) -> bool:
        """Whether the budget has room for another task. Waits for tasks in hand: they may be
        cheap."""
        while not self._plan.budget.has_room(self.spent, self._in_hand):
            if not self._in_hand:
                return False
            self._one_less.clear()
            await self._one_less.wait()
        return True

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
                return await self._skip(position, drawn)
            group = GroupAssignment(
                group_id=f"s{position:07d}",
                drawn=drawn,
                sampling=self._plan.sampling,
                size=self._plan.per_task,
            )
            try:
                members = await self._crew.run_group(group)
            except TaskUnfit as error:
                return await self._skip(position, drawn.refused("unfit", str(error)))
            await self._decide(position, members)
        finally:
            self._in_hand -= 1
            self._one_less.set()
            self._groups.release()

    async def _skip(self, position: int, bad: BadRow) -> None:
        log.warning("row_passed_over", **bad.fields)
        self._bad_rows.add(bad)
        if self._bad_rows.exceeded:
            raise TooManyBadRows(self._bad_rows.sentence())
        await self._store.add(
            DecidedTask(
                position=position,
                task_id=bad.task_id,
                bad=str(bad),
                seconds=self.spent.seconds,
            )
        )

    async def _decide(self, position: int, members: list[Member]) -> None:
        candidates = [await self._candidate(member) for member in members]
        # No await between selection and marks: two tasks may hold duplicates.
        outcomes = select(candidates, self._store.seen, self._plan.most_per_task)
        kept = [m for m, o in zip(members, outcomes, strict=True) if o is SelectionOutcome.KEPT]
        marks = [
            candidate.mark
            for candidate, outcome in zip(candidates, outcomes, strict=True)
            if outcome is SelectionOutcome.KEPT
        ]
        self._store.seen.update(marks)
        known = self._store.totals.examples
        examples: dict[str, str] = {}
        for candidate, outcome in zip(candidates, outcomes, strict=True):
            if outcome is SelectionOutcome.FILTERED:
                for name in candidate.refused_by:
                    if name not in known:
                        examples.setdefault(name, candidate.excerpt)
        rows, reasons = self._export(kept)
        tokens = [tokens_of(member.trajectory) for member in members]
        await self._store.add(
            DecidedTask(
                position=position,
                task_id=members[0].identity.task.id,
                outcomes=outcomes,
                refused=[
                    candidate.refused_by
                    for candidate, outcome in zip(candidates, outcomes, strict=True)
                    if outcome is SelectionOutcome.FILTERED
                ],
                examples=examples,
                marks=marks,
                kept=[member.trajectory for member in kept],
                rows=rows,
                not_exported=reasons,
                read=sum(one["input_tokens"] for one in tokens),
                written=sum(one["output_tokens"] for one in tokens),
                seconds=self.spent.seconds,
            )
        )

    async def _candidate(self, member: Member) -> Candidate:
        trajectory = member.trajectory
        _check_versions(trajectory, self._plan.version)
        errored = trajectory.status is Status.ERRORED
        criteria = self._plan.criteria
        refused_by: tuple[str, ...] = ()
        excerpt = ""
        if criteria is not None and not errored and not trajectory.masked:
            state = member.log.state
            shown = with_tools(with_texts(trajectory, state), state)
            refused_by = await criteria.refused_by(shown)
            excerpt = excerpt_of(shown) if refused_by else ""
        return Candidate(
            errored=errored,
            reward_failed=any(event.kind == REWARD_FAILED for event in trajectory.events),
            masked=trajectory.masked,
            refused_by=refused_by,
            excerpt=excerpt,
            mark="" if errored else self._mark(member),
        )

    def _mark(self, member: Member) -> str:
        state, task = member.log.state, member.identity.task
        if self._plan.dedupe is Dedupe.CALLS:
            rules = self._crew.rollout_context.rules
            return mark_of_calls(task, canonical_calls(state, task, rules.protocol, rules.codec))
        prompt = next((s.token_ids for s in state.history if s.author is Author.PROMPT), None)
        return "" if prompt is None else mark_of(prompt, (one.text for one in state.actions))

    def _export(
        self, kept: Sequence[Member]
    ) -> tuple[Mapping[ExportLayout, list[Row]], Mapping[ExportLayout, list[str]]]:
        """Rows of each export, and the reasons for missing rows."""
        layouts = self._store.layouts
        rows: dict[ExportLayout, list[Row]] = {layout: [] for layout in layouts}
        reasons: dict[ExportLayout, list[str]] = {layout: [] for layout in layouts}
        if not layouts:
            return rows, reasons
        rules = self._crew.rollout_context.rules
        protocol = rules.protocol
        assert isinstance(protocol, Chat | Tagged)  # the command has refused all others
        for member in kept:
            state, identity = member.log.state, member.identity
            try:
                conversation = conversation_of(state, identity.task, protocol, rules.codec)
            except NotExportable as error:
                for layout in layouts:
                    reasons[layout].append(str(error))
                continue
            functions = functions_of(tools_of(state, identity.task, protocol))
            for layout in layouts:
                try:
                    row = export_row(layout, conversation, functions)
                except NotExportable as error:
                    reasons[layout].append(str(error))
                else:
                    rows[layout].append({"id": identity.trajectory_id, **row})
        return rows, reasons


def _check_versions(trajectory: Trajectory, version: WeightVersion) -> None:
    foreign = [str(one) for one in trajectory.weight_versions if one != version]
    if foreign:
        raise StartupError(
            f"{trajectory.id} was written by weights {', '.join(foreign)}, but the samplers began "
            "with "
            f"{version}: publish no weights to them while `engine sample` runs"
        )
