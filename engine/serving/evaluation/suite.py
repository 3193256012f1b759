"""One suite under one weight version: every row once, its reward, and a line on disk for each.

Invariants
- Memory does not grow with the suite: a byte per row, and at most as many trajectories as there are
  slots. A row's line is on disk before its slot is free.
- Every measured row was written by the suite's version alone. A row in which other weights wrote is
  rolled out again.
- A row that infrastructure failed is rolled out again when all others are done. A row that fails to
  the end is `errored`: not a wrong answer, and not in the mean.
- A row that an earlier life finished is not run again.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import ExitStack, aclosing
from dataclasses import dataclass, replace

import structlog

from engine.config import Suite
from engine.core.rollout.assignment import Assignment
from engine.core.tasks import BadRow, DrawnTask, for_purpose
from engine.errors import TaskUnfit
from engine.serving.crew.crew import Crew, SuiteCrew
from engine.serving.evaluation.results import (
    Results,
    RowStates,
    bad_row,
    earlier_rows,
    row_of,
    sample_of,
)
from engine.serving.evaluation.suite_tasks import SuiteTasks
from engine.serving.evaluation.tally import ERRORED, RowState, SuiteTally
from engine.serving.telemetry.event_feed import Happened, unheard
from toolwright.recipe import Limits
from toolwright.types import Purpose, SamplingParams, Trajectory, WeightVersion

PASSES = 3
"""Passes over the rows that infrastructure failed, the first pass included. Each pass has the full
time budget of its attempts, so an outage must outlast several passes to cost a row."""
PASS_PAUSE_S = 10.0

log = structlog.get_logger("evaluation")


@dataclass(frozen=True, slots=True, kw_only=True)
class SuiteContext:
    """The parts that all suites of a run share."""

    sampling: SamplingParams
    """The recipe's parameters."""
    results: Results
    slots: asyncio.Semaphore
    """One for each trajectory that is held until its line is on disk."""
    samples: int
    """Number of rows that are kept as text."""
    happened: Happened = unheard
    keep: Callable[[Trajectory, str], Awaitable[None]] | None = None
    """Keeps the trajectory of a measured row; with the digest of the suite's settings."""


class SuiteRun:
    """One evaluation; run it once. `sampled` is set when it no longer needs the suite's weights:
    only scoring and writing are left."""

    def __init__(
        self,
        context: SuiteContext,
        crew: SuiteCrew,
        suite: Suite,
        version: WeightVersion,
        tasks: SuiteTasks,
        *,
        settings: str,
    ) -> None:
        """crew: of the suite's task. settings: separates rows of other settings."""
        self.suite = suite
        self.version = version
        self.sampled = asyncio.Event()
        self.rolling = 0
        """Trajectories in flight."""
        self._context = context
        self._tasks = tasks
        rules = crew.rollout_context.rules
        self._codec = rules.codec
        self._crew: Crew = crew.of_suite(limits_of(suite, rules.limits))
        self._sampling = sampling_of(suite, context.sampling)
        self._settings = settings
        self._states = RowStates(suite.n)
        self._tally = SuiteTally()
        self._cut = False
        self._still = asyncio.Event()
        self._still.set()
        self._pass = 0

    @property
    def done(self) -> int:
        """Number of finished rows."""
        return self.suite.n - self._states.count(RowState.OPEN)

    @property
    def tally(self) -> SuiteTally:
        """The tally of the finished rows."""
        return self._tally

    def cut(self) -> None:
        """Begins no further row. Rows begin in order, so the measured rows are the suite's
        beginning, not a choice of its quick rows."""
        if not self.sampled.is_set():
            self._cut = True

    async def run(self) -> bool:
        """Returns True when its line is in evaluations.jsonl; False if nothing could be
        measured."""
        began = time.monotonic()
        try:
            await self.read_earlier_rows()
            await self.measure()
        finally:
            self.sampled.set()
        return await self._summarise(time.monotonic() - began)

    async def read_earlier_rows(self) -> None:
        """Reads the rows that an earlier life finished."""
        self._rows = self._context.results.rows(self.suite.name, self.version)
        await asyncio.to_thread(self._read_earlier_rows)

    async def measure(self) -> None:
        """Runs until every row is over, or it was cut; after `read_earlier_rows`. Leaves no line in
        evaluations.jsonl."""
        try:
            async with asyncio.TaskGroup() as group:
                await self._sample(group)
                self.sampled.set()
        finally:
            self.sampled.set()
            self._context.results.close(self._rows)

    def _read_earlier_rows(self) -> None:
        """Reads an earlier life's rows, which may be a large file."""
        for row in earlier_rows(self._rows, self._settings, self.suite.n):
            self._enter(row, int(row["index"]))
        if found := self._states.count(RowState.MEASURED) + self._states.count(RowState.BAD):
            log.info("evaluation_goes_on", suite=self.suite.name, rows=found, of=self.suite.n)

    async def _sample(self, group: asyncio.TaskGroup) -> None:
        for self._pass in range(PASSES):
            if self._pass:
                await asyncio.sleep(PASS_PAUSE_S)
            await self._go_through(group, self._wanted(again=self._pass > 0))
            await self._still.wait()
            failed = self._states.count(RowState.ERRORED)
            if self._cut or not failed:
                return
            log.warning("evaluation_rows_failed", suite=self.suite.name, rows=failed)

    def _wanted(self, *, again: bool) -> Callable[[int], bool]:
        if again:
            return lambda index: self._states[index] is RowState.ERRORED
        return lambda index: self._states[index] in (RowState.OPEN, RowState.ERRORED)

    async def _go_through(self, group: asyncio.TaskGroup, wanted: Callable[[int], bool]) -> None:
        async with aclosing(self._tasks.walk(wanted, version=self.version)) as rows:
            async for index, drawn in rows:
                await self._context.slots.acquire()
                if self._cut:
                    self._context.slots.release()
                    return
                self._begin(index)
                group.create_task(self._row(index, drawn))

    def _begin(self, index: int) -> None:
        """Opens a row. An errored row that is run again must count as open. Otherwise a pass would
        begin it once more while it is scored."""
        self.rolling += 1
        self._still.clear()
        if self._states[index] is RowState.ERRORED:
            self._tally.again()
            self._states.open_again(index)

    async def _row(self, index: int, drawn: DrawnTask | BadRow) -> None:
        with ExitStack() as held:
            held.callback(self._context.slots.release)
            rolling = held.enter_context(ExitStack())
            rolling.callback(self._rolled)
            if isinstance(drawn, BadRow):
                await self._write_bad(index, drawn.task_id, str(drawn))
                return
            try:
                member, errored = await self._crew.run_row(
                    self._assignment(index, drawn),
                    number=self._pass,
                    version=self.version,
                    sampled=rolling.close,
                )
            except TaskUnfit as error:
                await self._write_bad(index, drawn.task.id, str(error))
            else:
                await self._write(member.trajectory, errored)

    def _rolled(self) -> None:
        """One row less is in flight."""
        self.rolling -= 1
        if not self.rolling:
            self._still.set()

    def _assignment(self, index: int, drawn: DrawnTask) -> Assignment:
        suite, sampling = self.suite, self._sampling
        if sampling.seed is not None:
            sampling = replace(sampling, seed=sampling.seed + index)
        return Assignment(
            trajectory_id=f"e{self.version}.{suite.name}-{index}",
            group_id=f"e{self.version}.{suite.name}",
            index=index,
            task=for_purpose(drawn.task, Purpose.EVAL),
            sampling=sampling,
            media=drawn.media,
            withhold_observations=suite.withhold_observations,
        )

    async def _write(self, trajectory: Trajectory, errored: str) -> None:
        """Writes the trajectory's line, and its text if it is one of the samples. errored: why it
        has no reward that counts."""
        context, codec = self._context, self._codec
        if not errored and trajectory.index < context.samples:
            sample = sample_of(trajectory, self.suite.name, self.version, codec)
            await context.results.samples.append(sample)
        row = row_of(
            trajectory, self.suite.name, self.version, self._settings, codec, errored=errored
        )
        if context.keep is not None and not errored:
            await context.keep(trajectory, self._settings)
        row["position"] = self._tasks.position(trajectory.index)
        await self._rows.append(row)
        self._enter(row, trajectory.index)

    async def _write_bad(self, index: int, task_id: str, reason: str) -> None:
        log.warning("evaluation_bad_row", suite=self.suite.name, index=index, reason=reason)
        row = bad_row(index, task_id, reason, self.suite.name, self.version, self._settings)
        await self._rows.append(row)
        self._enter(row, index)

    def _enter(self, row: dict[str, object], index: int) -> None:
        before = self._states[index]
        if not self._states.enter(row, index):
            return
        if before is RowState.ERRORED:
            self._tally.again()
        self._tally.add(row)

    async def _summarise(self, seconds: float) -> bool:
        suite, version, tally = self.suite, self.version, self._tally
        if not tally.n:
            log.error(
                "evaluation_failed",
                suite=suite.name,
                version=str(version),
                **{ERRORED: tally.errored, "bad_rows": tally.bad},
            )
            return False
        result = {
            "suite": suite.name,
            "lineage": version.lineage,
            "step": version.step,
            "asked": suite.n,
            **tally.summary(),
            "temperature": suite.temperature,
            "seconds": round(seconds, 3),
        }
        await self._context.results.summaries.append(result)
        log.info("evaluated", **result)
        news = ("suite", "lineage", "step", "n", "reward")
        self._context.happened("evaluated", **{name: result[name] for name in news})
        if tally.all_wrong:
            log.warning("every_answer_is_worth_0", suite=suite.name, rows=tally.n)
        return True


def limits_of(suite: Suite, limits: Limits) -> Limits:
    """The task's limits, replaced by those that the suite names. A suite that names `response`
    counts by it, whatever the task's `policy`."""
    if suite.limits is None:
        return limits
    named = {name: getattr(suite.limits, name) for name in suite.limits.model_fields_set}
    if "response" in named:
        named.setdefault("policy", 0)
    return limits.model_copy(update=named)


def sampling_of(suite: Suite, training: SamplingParams) -> SamplingParams:
    """Sampling of a suite: as in training, except for what the suite names. A task's own parameters
    come on top, row by row."""
    named = {
        "temperature": suite.temperature,
        "top_p": suite.top_p,
        "top_k": suite.top_k,
        "min_p": suite.min_p,
        "repetition_penalty": suite.repetition_penalty,
        "max_new_tokens": suite.max_new_tokens,
        "seed": suite.sampling_seed,
    }
    return replace(training, **{k: v for k, v in named.items() if v is not None})  # type: ignore[arg-type]
