"""Runs suites with the samplers' weights, by the machinery of the evaluation lane.

`engine.serving.evaluation.suite` owns a row: what a kill leaves of it and when it runs again. This
module runs many suites at once, with what an engine without a learner needs around them.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Sequence
from contextlib import AsyncExitStack, aclosing
from dataclasses import asdict
from typing import Any

from engine.config import EngineTable
from engine.core.build import build_sampling
from engine.core.engine_core import EngineCore, PolicyCodec
from engine.core.rehearsal import REHEARSED, rehearse
from engine.core.rollout.decide import Rules
from engine.core.tasks import BadRow
from engine.errors import StartupError
from engine.offline.evaluate.folder import LOG, EvaluationFolder, EvaluationSettings, SuiteSize
from engine.offline.evaluate.options import EvaluationOptions
from engine.offline.evaluate.questions import SelectedSuite, named_suites, select_questions
from engine.offline.fixed_weights import ServedPolicy, served_policy
from engine.offline.progress import SECONDS, ProgressLine, duration, score_so_far
from engine.offline.resume_settings import setting_text
from engine.serving.admission.places import Places
from engine.serving.crew.in_process import InProcessCrew
from engine.serving.evaluation.lane import check_suites
from engine.serving.evaluation.results import Results
from engine.serving.evaluation.suite import SuiteContext, SuiteRun, limits_of, sampling_of
from engine.serving.evaluation.suite_tasks import SuiteTasks
from engine.serving.telemetry.logs import log_to
from toolwright.imports import recorded
from toolwright.recipe import Recipe
from toolwright.types import WeightVersion


class Evaluator:
    """One evaluation; `run` it once."""

    def __init__(
        self,
        recipe: Recipe,
        table: EngineTable,
        folder: EvaluationFolder,
        options: EvaluationOptions,
    ) -> None:
        """folder: already claimed."""
        self._recipe = recipe
        self._table = table
        self._folder = folder
        self._options = options

    async def run(self, show: Callable[[str], None]) -> None:
        """Returns when every row is over. show: prints a line.

        Raises EngineError if it cannot go on; finished rows stay.
        """
        async with AsyncExitStack() as stack:
            recipe, options = self._recipe, self._options
            core = EngineCore(recipe, self._table, stack)
            selected = await self._selected()
            tasks = {one.suite.name: self._tasks(one) for one in selected}
            identities = {}
            for name, own in tasks.items():
                stack.callback(own.close)
                identities[name] = await own.open()
            sampler = await core.open_sampler()
            suites = [one.suite for one in selected]
            limits = {suite.task: recipe.shared.task.limits for suite in suites}
            check_suites(suites, limits, sampler.longest_prompt)
            served = served_policy(sampler, recipe.shared.sampler)
            settings = self._settings(selected, identities, core.codec, served)
            if aside := self._folder.begin(settings, fresh=options.fresh):
                log_to(self._folder.path / LOG)  # the previous log was set aside
                show(f"the earlier evaluation is in {aside} now")
            await core.open_tools(self._folder.owner())
            await core.tools.close_abandoned(())  # of a killed process
            crew = InProcessCrew(
                rollout_context=core.rollout_context(),
                rewards=core.tasks[""].rewards,
                places=Places(0),
                life=f"t{time.time_ns() // 1_000_000:x}",
                patience=self._table.patience_s,
            )
            for own in tasks.values():
                await _rehearse(own, crew.rollout_context.rules, served.version)
            limit = options.concurrency or self._table.evaluation.max_concurrent
            context = SuiteContext(
                sampling=build_sampling(recipe),
                results=Results(self._folder.path),
                slots=asyncio.Semaphore(limit),
                samples=self._table.evaluation.samples,
            )
            context.results.begin()
            runs = [
                SuiteRun(
                    context,
                    crew,
                    suite,
                    served.version,
                    tasks[suite.name],
                    settings=settings.digest,
                )
                for suite in suites
            ]
            for run in runs:
                await run.read_earlier_rows()
            total, done = sum(run.suite.n for run in runs), sum(run.done for run in runs)
            greedy = [one.suite.name for one in selected if one.suite.temperature == 0.0]
            if greedy and options.samples > 1:
                show(f"warning: {', '.join(greedy)}: greedy samples are alike, set --temperature")
            unit = "questions" if options.samples == 1 else "trajectories"
            show(f"{total:,} {unit}, {done:,} done before; weights {served.name}")
            progress = ProgressLine(total, done, options.progress, unit=unit)
            report = _report(runs, context.results, progress, options.results.by)
            await _measure(core, runs, progress, report)

    async def _selected(self) -> list[SelectedSuite]:
        options, table = self._options, self._table
        suites = await named_suites(
            self._recipe, table.evaluation, options.suites, max_bad_rows=table.max_bad_rows
        )
        return select_questions(
            suites,
            subset=options.subset,
            samples=options.samples,
            temperature=options.temperature,
        )

    def _tasks(self, one: SelectedSuite) -> SuiteTasks:
        return SuiteTasks(
            one.suite,
            self._recipe.folder,
            max_bad_rows=self._table.max_bad_rows,
            positions=one.positions,
        )

    def _settings(
        self,
        selected: Sequence[SelectedSuite],
        identities: dict[str, str],
        codec: PolicyCodec,
        served: ServedPolicy,
    ) -> EvaluationSettings:
        """Settings that all rows of the folder share.

        What changes no score is left out, such as addresses and numbers of processes.
        """
        shared, options = self._recipe.shared, self._options
        task, tools, sampler, subset = shared.task, shared.tools, shared.sampler, options.subset
        settings = {
            "weights": served.name,
            "policy": codec.hash[:12],
            "protocol": setting_text(
                [recorded(task.protocol), task.protocol_options, self._table.observation_keep]
            ),
            "reward": setting_text([task.reward, task.reward_options, task.reward_per_group]),
            "sampler": setting_text(
                [sampler.api, served.kind, sampler.observations, sampler.send_stops]
            ),
            "tools": setting_text(
                [
                    (n, tools[n].names, tools[n].words, *filter(None, [tools[n].observation_keep]))
                    for n in task.tools or list(tools)
                ]
            ),
            "suites": ", ".join(one.suite.name for one in selected),
            **(
                {"template": setting_text(shared.policy.template)} if shared.policy.template else {}
            ),
            "--samples": str(options.samples),
            "--subset": f"{subset.n} of seed {subset.seed}" if subset else "all",
        }
        for one in selected:
            for name, value in self._suite_settings(one, identities[one.suite.name]).items():
                settings[f"{name} of suite {one.suite.name}"] = setting_text(value)
        return EvaluationSettings(
            name=shared.run.name,
            weights=served.name,
            version=str(served.version),
            samples=options.samples,
            suites=[
                SuiteSize(name=one.suite.name, n=one.suite.n, questions=one.questions)
                for one in selected
            ],
            settings=settings,
        )

    def _suite_settings(self, one: SelectedSuite, source: str) -> dict[str, Any]:
        suite, limits = one.suite, limits_of(one.suite, self._recipe.shared.task.limits)
        sampling = sampling_of(suite, build_sampling(self._recipe))
        return {
            "questions": [one.questions, one.positions_digest, source],
            "sampling": asdict(sampling),
            "limits": limits.model_dump(),
            "metadata": suite.metadata,
            "withheld observations": suite.withhold_observations,
        }


async def _rehearse(tasks: SuiteTasks, rules: Rules, version: WeightVersion) -> None:
    """Raises StartupError if no prompt can be made of any of a suite's first tasks.

    Then the cause is the protocol or the template, and no single row.
    """
    refused: StartupError | None = None
    async with aclosing(tasks.walk(lambda index: index < REHEARSED, version=version)) as first:
        async for _, drawn in first:
            if isinstance(drawn, BadRow):
                continue
            try:
                rehearse(rules.protocol, rules.codec, drawn.task)
            except StartupError as error:
                refused = refused or error
            else:
                return
    if refused is not None:
        raise refused


async def _measure(
    core: EngineCore,
    runs: Sequence[SuiteRun],
    progress: ProgressLine,
    report: Coroutine[Any, Any, None],
) -> None:
    """All suites share the slots, so that no suite's last rows run alone."""
    async with core.kept_alive(report):
        try:
            async with asyncio.TaskGroup() as measuring:
                for run in runs:
                    measuring.create_task(run.measure())
        finally:
            progress.end()


async def _report(
    runs: Sequence[SuiteRun], results: Results, progress: ProgressLine, by: str
) -> None:
    while True:
        await asyncio.sleep(SECONDS)
        done = sum(run.done for run in runs)
        pace = progress.pace(done)
        left = sum(run.suite.n for run in runs) - done
        rolling = sum(run.rolling for run in runs)
        progress.show(
            done,
            [
                score_so_far([run.tally for run in runs], by),
                f"{pace:.1f}/s",
                f"{duration(left / pace)} left" if pace else "",
                "disk full, waiting" if results.full else f"{rolling} in flight",
            ],
        )
