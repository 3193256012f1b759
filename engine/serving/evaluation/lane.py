"""When each suite is evaluated, and how long new weights wait for it.

Invariants
- One evaluation of a suite is whole under one weight version.
- A suite is evaluated once per version. What evaluations.jsonl holds is not done again. An
  evaluation that a kill cut goes on after its finished rows when the engine is back at that
  version.
- It counts neither as running nor as accepted in the capacity formula, and is never leased.

A publish waits only for the tokens of an evaluation: rewards and lines may follow under the next
weights. It waits at most `publish_waits_s`. Then no further row begins, and those in flight end.
The suite's line says how many rows it has (`n` of `asked`; the first ones, so that long rows count
like short ones).

An alternative would hold some samplers back at the old weights. It would let a publish through at
once, but it needs several samplers and costs their tokens for training. One rule that holds
everywhere was preferred.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

import orjson
import structlog

from engine.config import Evaluation, Suite
from engine.core.sampler.context import check_context
from engine.errors import StartupError
from engine.serving.crew.crew import SuiteCrew
from engine.serving.evaluation.results import Results
from engine.serving.evaluation.suite import SuiteContext, SuiteRun, limits_of, sampling_of
from engine.serving.evaluation.suite_tasks import SuiteTasks
from engine.serving.telemetry.event_feed import Happened, unheard
from toolwright.recipe import Limits
from toolwright.types import SamplingParams, Trajectory, WeightVersion

log = structlog.get_logger("evaluation")


def check_tasks(suites: Sequence[Suite], tasks: Collection[str]) -> None:
    """Raises StartupError for a suite that names no task of the recipe, or an unknown one. tasks:
    their names, "" for a single task."""
    known = ", ".join(tasks)
    for suite in suites:
        if suite.task in tasks:
            continue
        if not known:
            raise StartupError(
                f"suite {suite.name!r}: task = {suite.task!r}, and the recipe has only [task]: "
                f"leave it out, or write [tasks.{suite.task}]"
            )
        given = f"task = {suite.task!r} is not one" if suite.task else "its task is not set to one"
        raise StartupError(
            f"suite {suite.name!r}: {given} of the recipe's: set its task to one of {known}"
        )


def check_suites(
    suites: Sequence[Suite], limits: Mapping[str, Limits], longest: int | None
) -> None:
    """Raises StartupError if a sampler takes shorter prompts than a suite's own limit. limits: by
    task."""
    for suite in suites:
        if suite.limits is not None:
            limit = limits_of(suite, limits[suite.task]).model
            check_context(f"limits.model of suite {suite.name!r}", limit, longest)


class EvaluationLane:
    """Runs the suites that are due. `open` must come first."""

    def __init__(
        self,
        *,
        table: Evaluation,
        steps: int,
        crews: Mapping[str, SuiteCrew],
        sampling: SamplingParams,
        run_folder: Path,
        happened: Happened = unheard,
        keep: Callable[[Trajectory, str], Awaitable[None]] | None = None,
    ) -> None:
        """crews: of training, by task; a suite is rolled out and scored like its task. sampling: of
        training; a suite replaces the parameters that it names. keep: see `SuiteContext`."""
        self._table = table
        self._steps = steps
        self._results = Results(run_folder)
        self._crews = crews
        self._context = SuiteContext(
            sampling=sampling,
            results=self._results,
            slots=asyncio.Semaphore(table.max_concurrent),
            samples=table.samples,
            happened=happened,
            keep=keep,
        )
        self._sources: dict[str, SuiteTasks] = {}
        self._settings: dict[str, str] = {}
        self._done: set[tuple[str, str, int]] = set()
        self._runs: list[SuiteRun] = []
        self._current: asyncio.Task[None] | None = None
        self._evaluations: set[asyncio.Task[None]] = set()
        self._failures: asyncio.Queue[BaseException] = asyncio.Queue()
        self._stopped = False

    async def open(self, folder: Path, *, max_bad_rows: int) -> None:
        """Opens the sources and reads what earlier lives left. Raises StartupError if a source
        cannot be used or is too short, or a sampler's context is too small for a suite's limits."""
        self._done = self._results.begin()
        around = {name: crew.rollout_context for name, crew in self._crews.items()}
        limits = {name: its.rules.limits for name, its in around.items()}
        pool = next(iter(around.values())).pool
        check_suites(self._table.suites, limits, pool.longest_prompt)
        for suite in self._table.suites:
            tasks = self._sources[suite.name] = SuiteTasks(suite, folder, max_bad_rows=max_bad_rows)
            self._settings[suite.name] = self._digest(suite, await tasks.open())

    def set_run(self, name: str) -> None:
        """Sets the run's name, its first lineage, for the suites' metadata."""
        for tasks in self._sources.values():
            tasks.run = name

    def close(self) -> None:
        for tasks in self._sources.values():
            tasks.close()

    @property
    def busy(self) -> bool:
        return bool(self._evaluations)

    @property
    def running(self) -> int:
        """Trajectories in flight."""
        return sum(run.rolling for run in self._runs)

    @property
    def rows(self) -> tuple[int, int]:
        """(finished rows, all rows) of the evaluation in progress; (0, 0) without one."""
        runs = self._runs if self.busy else []
        return sum(run.done for run in runs), sum(run.suite.n for run in runs)

    @property
    def full(self) -> bool:
        """The disk is full: an evaluation waits with its results."""
        return self._results.full

    def due(self, version: WeightVersion) -> list[Suite]:
        """Suites to run at this version that have not run at it."""
        now = {"every"} if self._table.every and version.step % self._table.every == 0 else set()
        if version.step == 0:
            now |= {"every", "ends"}
        if version.step == self._steps:
            now |= {"every", "ends", "last"}
        return [
            suite
            for suite in self._table.suites
            if suite.when in now and (suite.name, version.lineage, version.step) not in self._done
        ]

    def start(self, version: WeightVersion) -> None:
        """Begins the evaluations that are due at the samplers' present version, unless the lane was
        stopped."""
        suites = [] if self._stopped else self.due(version)
        if not suites:
            return
        self._runs = [
            SuiteRun(
                self._context,
                self._crews[suite.task],
                suite,
                version,
                self._sources[suite.name],
                settings=self._settings[suite.name],
            )
            for suite in suites
        ]
        self._current = asyncio.get_running_loop().create_task(self._run(self._runs))
        self._evaluations.add(self._current)
        self._current.add_done_callback(self._ended)

    async def idle(self) -> bool:
        """Returns when no evaluation needs the samplers' weights any more; after `publish_waits_s`
        it cuts the evaluations. False if the last one was stopped before its end.

        Raises the evaluation's error.
        """
        current, runs = self._current, self._runs
        if current is None:
            return True
        try:
            async with asyncio.timeout(self._table.publish_waits_s):
                await _sampled(runs)
        except TimeoutError:
            log.warning(
                "evaluation_cut",
                suites=[run.suite.name for run in runs if not run.sampled.is_set()],
                fix="raise engine.evaluation.publish_waits_s, or lower the suites' n",
            )
            for run in runs:
                run.cut()
            await _sampled(runs)
        if self._stopped:
            await asyncio.wait({current})
        if current.cancelled():
            return False
        if current.done():
            current.result()
        return True

    async def watch(self) -> None:
        """Runs until cancelled. Raises an evaluation's error at once."""
        raise await self._failures.get()

    async def stop(self) -> None:
        """Stops for good. Rows in flight are run again at the engine's next start."""
        self._stopped = True
        for task in self._evaluations:
            task.cancel()
        await asyncio.gather(*self._evaluations, return_exceptions=True)

    async def _run(self, runs: Sequence[SuiteRun]) -> None:
        """Runs all suites. They share the slots, so that no suite's last rows run alone."""
        async with asyncio.TaskGroup() as group:
            for run in runs:
                group.create_task(self._evaluate(run))

    async def _evaluate(self, run: SuiteRun) -> None:
        await run.run()
        # Also if nothing could be measured: only the next life tries again.
        self._done.add((run.suite.name, run.version.lineage, run.version.step))

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._evaluations.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._failures.put_nowait(error)

    def _digest(self, suite: Suite, source: str) -> str:
        """Digest that separates rows measured with other settings from those of this suite."""
        rules = self._crews[suite.task].rollout_context.rules
        unread = {"n", "when"} if suite.task else {"n", "when", "task"}
        settings = {
            "suite": suite.model_dump(mode="json", exclude=unread),
            "limits": limits_of(suite, rules.limits).model_dump(),
            "sampling": asdict(sampling_of(suite, self._context.sampling)),
            "source": source,
        }
        data = orjson.dumps(settings, option=orjson.OPT_SORT_KEYS)
        return hashlib.sha256(data).hexdigest()[:12]


async def _sampled(runs: Sequence[SuiteRun]) -> None:
    for run in runs:
        await run.sampled.wait()
