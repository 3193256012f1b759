"""Asks the questions: the suites of the evaluation lane, under the weights that the samplers have.

What a row is, what a kill leaves and what is run again is the lane's (`lanes/evaluation/suite.py`);
here are many suites at once, with what an engine without a learner needs around them.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack, aclosing
from dataclasses import asdict, dataclass, replace
from typing import Any, TextIO

from engine.config import EngineTable
from engine.core.build import build_protocol, build_rewards, build_sampling, build_tools
from engine.core.protocols import Protocol
from engine.core.rehearsal import REHEARSED, rehearse
from engine.core.rewards.rewards import Rewards
from engine.core.rollout.assignment import Surroundings
from engine.core.rollout.decide import Rules
from engine.core.sampler.context import check_context
from engine.core.sampler.policy_sampler import PolicySampler
from engine.core.tasks import BadRow
from engine.core.tools.services import ToolServices
from engine.errors import StartupError
from engine.offline.evaluate.folder import LOG, AskedOf, Begun, EvaluationFolder
from engine.offline.evaluate.policy import PolicyCodec, evaluated_codec, evaluated_sampler
from engine.offline.evaluate.questions import Asked, Subset, ask, suites_of
from engine.offline.fixed_weights import Served
from engine.offline.progress import SECONDS, Progress
from engine.offline.resume_settings import short
from engine.serving.evaluation.lane import check_suites, limits_of, sampling_of
from engine.serving.evaluation.results import Results
from engine.serving.evaluation.suite import SuiteContext, SuiteRun
from engine.serving.evaluation.tasks import SuiteTasks
from engine.serving.telemetry.logs import log_to
from toolwright.imports import recorded
from toolwright.recipe import Recipe
from toolwright.types import WeightVersion


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """suites: names; empty = all. samples: of each question. temperature: None = each suite's.
    concurrency: rows in flight; None = engine.evaluation.max_concurrent. fresh: an evaluation that
    is there is set aside."""

    suites: Sequence[str] = ()
    subset: Subset | None = None
    samples: int = 1
    temperature: float | None = None
    concurrency: int | None = None
    fresh: bool = False


class Evaluator:
    """Run it once."""

    def __init__(
        self, recipe: Recipe, table: EngineTable, folder: EvaluationFolder, wanted: Wanted
    ) -> None:
        """The folder is claimed."""
        self._recipe = recipe
        self._table = table
        self._folder = folder
        self._wanted = wanted

    async def run(self, out: TextIO, by: str, told: Callable[[str], None]) -> None:
        """Returns when every row is over. EngineError where it cannot go on; what is done stays.

        out: for progress. by: the part of the reward that progress tells of; "" = the reward. told:
        a line for people.
        """
        async with AsyncExitStack() as stack:
            recipe, shared, table = self._recipe, self._recipe.shared, self._table
            protocol, rewards = build_protocol(recipe), build_rewards(recipe)
            stack.callback(rewards.close)
            codec = evaluated_codec(recipe)
            asked = await self._asked()
            tasks = {one.suite.name: self._tasks(one) for one in asked}
            identities = {}
            for name, own in tasks.items():
                stack.callback(own.close)
                identities[name] = await own.open()
            pool, served = await self._samplers(stack, codec, protocol, asked)
            begun = self._begun(asked, identities, codec, served)
            if aside := self._folder.begin(begun, fresh=self._wanted.fresh):
                log_to(self._folder.path / LOG)  # the one so far went aside
                told(f"the earlier evaluation is in {aside} now")
            services = build_tools(recipe, self._folder.owner())
            stack.push_async_callback(services.close)
            await services.open()
            await services.close_strangers(())  # of a life that was killed
            surroundings = Surroundings(
                rules=Rules(
                    protocol=protocol,
                    codec=codec,
                    limits=shared.task.limits,
                    observation_keep=table.observation_keep,
                ),
                pool=pool,
                tools=services,
                tokenizer_hash=codec.hash,
            )
            for one in asked:
                await _rehearse(tasks[one.suite.name], surroundings.rules, served.version)
            context = self._context(surroundings, rewards)
            runs = [
                self._run_of(context, one, tasks[one.suite.name], served, begun) for one in asked
            ]
            for run in runs:
                await run.take_up()
            total, done = sum(run.suite.n for run in runs), sum(run.done for run in runs)
            alike = [one.suite.name for one in asked if one.suite.temperature == 0.0]
            if alike and self._wanted.samples > 1:
                told(f"warning: {', '.join(alike)}: greedy samples are alike, set --temperature")
            words = "questions" if self._wanted.samples == 1 else "trajectories"
            told(f"{total:,} {words}, {done:,} done before; weights {served.name}")
            progress = Progress(total, done, out, words=words)
            await _measure(runs, pool, services, context.results, progress, by)

    async def _asked(self) -> list[Asked]:
        wanted, table = self._wanted, self._table
        suites = await suites_of(
            self._recipe, table.evaluation, wanted.suites, max_bad_rows=table.max_bad_rows
        )
        return ask(
            suites,
            subset=wanted.subset,
            samples=wanted.samples,
            temperature=wanted.temperature,
        )

    def _tasks(self, asked: Asked) -> SuiteTasks:
        return SuiteTasks(
            asked.suite,
            self._recipe.folder,
            max_bad_rows=self._table.max_bad_rows,
            positions=asked.positions,
        )

    async def _samplers(
        self,
        stack: AsyncExitStack,
        codec: PolicyCodec,
        protocol: Protocol,
        asked: Sequence[Asked],
    ) -> tuple[PolicySampler, Served]:
        """Whoever generates, and what it serves. StartupError where it takes shorter prompts than
        the limits allow."""
        pool, served = await evaluated_sampler(self._recipe, codec, protocol, stack)
        limits = self._recipe.shared.task.limits
        check_context("task.limits.model", limits.model, pool.longest_prompt)
        suites = [one.suite for one in asked]
        limits_by_task = {suite.task: limits for suite in suites}
        check_suites(suites, limits_by_task, pool.longest_prompt)
        return pool, served

    def _begun(
        self,
        asked: Sequence[Asked],
        identities: dict[str, str],
        codec: PolicyCodec,
        served: Served,
    ) -> Begun:
        """What all rows of the folder have in common. Addresses, numbers of processes and whatever
        else changes no score are left out."""
        shared, wanted = self._recipe.shared, self._wanted
        task, tools, sampler, subset = shared.task, shared.tools, shared.sampler, wanted.subset
        settings = {
            "weights": served.name,
            "policy": codec.hash[:12],
            "protocol": short(
                [recorded(task.protocol), task.protocol_options, self._table.observation_keep]
            ),
            "reward": short([task.reward, task.reward_options, task.reward_per_group]),
            "sampler": short([sampler.api, served.kind, sampler.observations, sampler.send_stops]),
            "tools": short(
                [
                    (n, tools[n].names, tools[n].serve, *filter(None, [tools[n].observation_keep]))
                    for n in task.tools or list(tools)
                ]
            ),
            "suites": ", ".join(one.suite.name for one in asked),
            **({"template": short(shared.policy.template)} if shared.policy.template else {}),
            "--samples": str(wanted.samples),
            "--subset": f"{subset.n} of seed {subset.seed}" if subset else "all",
        }
        for one in asked:
            for name, value in self._suite_settings(one, identities[one.suite.name]).items():
                settings[f"{name} of suite {one.suite.name}"] = short(value)
        return Begun(
            name=shared.run.name,
            weights=served.name,
            version=str(served.version),
            samples=wanted.samples,
            suites=[
                AskedOf(name=one.suite.name, n=one.suite.n, questions=one.questions)
                for one in asked
            ],
            settings=settings,
        )

    def _suite_settings(self, one: Asked, source: str) -> dict[str, Any]:
        suite, limits = one.suite, limits_of(one.suite, self._recipe.shared.task.limits)
        sampling = sampling_of(suite, build_sampling(self._recipe))
        return {
            "questions": [one.questions, one.drawn, source],
            "sampling": asdict(sampling),
            "limits": limits.model_dump(),
            "metadata": suite.metadata,
            "withheld observations": suite.withhold_observations,
        }

    def _context(self, surroundings: Surroundings, rewards: Rewards) -> SuiteContext:
        table = self._table
        results = Results(self._folder.path)
        results.begin()
        return SuiteContext(
            surroundings=surroundings,
            rewards=rewards,
            results=results,
            slots=asyncio.Semaphore(self._wanted.concurrency or table.evaluation.max_concurrent),
            life=f"t{time.time_ns() // 1_000_000:x}",
            patience=table.patience_s,
            samples=table.evaluation.samples,
        )

    def _run_of(
        self, context: SuiteContext, one: Asked, tasks: SuiteTasks, served: Served, begun: Begun
    ) -> SuiteRun:
        around, suite = context.surroundings, one.suite
        rules = replace(around.rules, limits=limits_of(suite, around.rules.limits))
        return SuiteRun(
            replace(context, surroundings=replace(around, rules=rules)),
            suite,
            served.version,
            tasks,
            sampling=sampling_of(suite, build_sampling(self._recipe)),
            settings=begun.digest,
        )


async def _rehearse(tasks: SuiteTasks, rules: Rules, version: WeightVersion) -> None:
    """StartupError where no prompt can be made of any of a suite's first tasks: then it is not the
    rows."""
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
    runs: Sequence[SuiteRun],
    pool: PolicySampler,
    services: ToolServices,
    results: Results,
    progress: Progress,
    by: str,
) -> None:
    """All suites share the slots, so that no suite's last rows run alone."""
    async with asyncio.TaskGroup() as group:
        beside = [
            group.create_task(one)
            for one in (
                pool.keep_alive(),
                services.keep_leases(),
                services.keep_processes(),
                _report(runs, results, progress, by),
            )
        ]
        try:
            async with asyncio.TaskGroup() as measuring:
                for run in runs:
                    measuring.create_task(run.measure())
        finally:
            progress.end()
        for task in beside:
            task.cancel()


async def _report(runs: Sequence[SuiteRun], results: Results, progress: Progress, by: str) -> None:
    while True:
        await asyncio.sleep(SECONDS)
        rolling = sum(run.rolling for run in runs)
        state = "disk full, waiting" if results.full else f"{rolling} in flight"
        progress.show(sum(run.done for run in runs), [run.tally for run in runs], by, state)
