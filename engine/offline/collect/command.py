"""`engine sample`: trajectories of a recipe's tasks without a learner, for `learner sft`."""

from __future__ import annotations

import asyncio
import hashlib
import re
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict
from pathlib import Path

from engine.config import EngineTable
from engine.core.build import (
    build_group_hook,
    build_sampling,
    refuse_api,
)
from engine.core.engine_core import EngineCore
from engine.core.tasks import TaskSource
from engine.errors import EngineError, StartupError
from engine.offline.collect.collector import Collector, Plan
from engine.offline.collect.criteria import Criteria
from engine.offline.collect.messages import is_exportable
from engine.offline.collect.options import CollectionOptions
from engine.offline.collect.report import CollectionReport
from engine.offline.collect.store import Store
from engine.offline.fixed_weights import fix_weights
from engine.offline.progress import SECONDS, ProgressLine
from engine.offline.resume_settings import setting_text
from engine.offline.signals import run_until_signal
from engine.serving.admission.places import Places
from engine.serving.crew.in_process import InProcessCrew
from engine.serving.telemetry.logs import log_to
from toolwright.imports import recorded
from toolwright.recipe import Recipe, refuse_open_ports

YIELD_SECONDS = 5.0
"""Interval between two writes of OUTPUT.yield.json."""
KEEP_THREADS = 8
_ADDRESS = re.compile(r"(?<=//)[^/]+|(?:[A-Za-z0-9_.-]+|\[[0-9a-f:]+\]):[0-9]{1,5}(?=/|$)")
"""HOST:PORT in a word of `tools.NAME.serve`, which may change between starts."""


async def collect(
    recipe: Recipe, table: EngineTable, options: CollectionOptions, show: Callable[[str], None]
) -> str:
    """Collects trajectories and returns the summary. show: prints a line.

    Raises EngineError if it cannot go on, StoppedBySignal after a signal. Decided tasks stay in
    both cases.
    """
    refuse_open_ports(recipe, "sampler", "tools")
    refuse_api(recipe, "`engine sample`")
    if options.output.name in ("", ".."):
        raise StartupError(f"--output {options.output}: name a file, or a folder of its own")
    log_to(options.output.with_name(options.output.name + ".log.jsonl"))
    return await run_until_signal(_collect(recipe, table, options, show))


async def _collect(
    recipe: Recipe, table: EngineTable, options: CollectionOptions, show: Callable[[str], None]
) -> str:
    shared = recipe.shared
    async with AsyncExitStack() as stack:
        core = EngineCore(recipe, table, stack)
        if options.export and not is_exportable(core.tasks[""].protocol):
            raise StartupError(
                f"--export {options.export[0]}: trajectories of {shared.task.protocol} cannot "
                "become chat messages: leave --export out, or use Chat or Tagged as task.protocol"
            )
        rewards, hook = core.tasks[""].rewards, build_group_hook(recipe)
        criteria = None
        if options.keep:
            criteria = Criteria(
                options.keep,
                options.folder,
                seconds=shared.task.reward_seconds,
                threads=KEEP_THREADS,
            )
            stack.callback(criteria.close)
        source = await TaskSource.opened(
            options.tasks or shared.task.source,
            options.folder if options.tasks else recipe.folder,
            seed=shared.run.seed,
            shuffle=False,
            max_bad_rows=table.max_bad_rows,
        )
        stack.callback(source.close)
        served = fix_weights(await core.open_pool())
        store = Store(options.output, layouts=options.export, shard_size=options.shard_size)
        stack.callback(store.close)
        paths = criteria.paths if criteria else {}
        await store.open(_settings(recipe, options, paths, core.codec.hash, source, served.name))
        await core.open_tools(_owner(options.output))
        await core.tools.close_abandoned(())  # of a killed process
        crew = InProcessCrew(
            rollout_context=core.rollout_context(),
            rewards=rewards,
            hook=hook,
            places=Places(table.fixed_places),
            life=f"t{time.time_ns() // 1_000_000:x}",
            patience=table.patience_s,
            metadata=shared.task.metadata,
        )
        plan = Plan(
            n=options.n,
            per_task=options.per_task,
            most_per_task=options.most_per_task,
            criteria=criteria,
            dedupe=options.dedupe,
            budget=options.budget,
            sampling=build_sampling(recipe),
            version=served.version,
            max_bad_rows=table.max_bad_rows,
        )
        collector = Collector(crew, source, store, plan)
        report = CollectionReport(store, collector, paths, options.prices, rewards.failures)
        stack.callback(report.write_yield)
        done = store.totals.tasks
        show(f"{collector.total:,} tasks, {done:,} done before; weights {served.name}")
        progress = ProgressLine(collector.total, done, options.progress, unit="tasks")
        async with core.kept_alive(_show_progress(report, progress), _write_yields(report)):
            try:
                await collector.run()
            finally:
                progress.end()
        store.finish()
        if store.totals.no_reward:
            show(report.summary())
            raise EngineError(
                "the reward function failed for every trajectory, so none was kept: correct "
                f"{shared.task.reward}, then collect into another --output"
            )
        return report.summary()


async def _show_progress(report: CollectionReport, progress: ProgressLine) -> None:
    while True:
        await asyncio.sleep(SECONDS)
        progress.show(report.done, report.progress())


async def _write_yields(report: CollectionReport) -> None:
    while True:
        await asyncio.sleep(YIELD_SECONDS)
        report.write_yield()


def _settings(
    recipe: Recipe,
    options: CollectionOptions,
    criteria: Mapping[str, str],
    tokenizer_hash: str,
    source: TaskSource,
    weights: str,
) -> dict[str, str]:
    """Settings that every start of a collection must repeat.

    What may change is left out: --n, addresses, time limits and numbers of processes.
    """
    shared, identity = recipe.shared, source.identity
    task = shared.task
    values = {
        "protocol": [recorded(task.protocol), task.protocol_options],
        "reward": [task.reward, task.reward_per_group, task.group_hook, sorted(task.stops.items())],
        "masks": [task.mask_overlong, task.mask_void],
        **({"length": task.overlong.model_dump()} if task.overlong else {}),
        **({"tool rewards": True} if task.tool_rewards else {}),
        "limits": task.limits.model_dump(exclude={"seconds"}),
        "sampling": asdict(build_sampling(recipe)),
        "tools": sorted((name, shared.tools[name].names) for name in task.tools or shared.tools),
    }
    served = {
        name: without_addresses(words)
        for name in task.tools or shared.tools
        if (words := shared.tools[name].words)
    }
    files = {
        name: hashlib.sha256((options.folder / where).read_bytes()).hexdigest()[:12]
        for name, path in criteria.items()
        if (where := path.rpartition(":")[0]).endswith(".py")
    }
    optional = {
        "reward options": task.reward_options,
        "group hook options": task.group_hook_options,
        "serve": served,
        "files of criteria": files,
    }
    values |= {name: value for name, value in optional.items() if value}
    return {
        "tasks": f"{identity.name} {identity.sha256[:12] or f'seed {identity.seed}'}",
        "weights": weights,
        "policy": tokenizer_hash[:12],
        "--per-task": str(options.per_task),
        "--most-per-task": str(options.most_per_task or "all"),
        "--keep": ", ".join(map(_recorded, options.keep)) or "all",
        "--dedupe": str(options.dedupe),
        "--shard-size": str(options.shard_size or "one file"),
        "--export": ", ".join(options.export) or "none",
        **{name: setting_text(value) for name, value in values.items()},
    }


def _recorded(keep: str) -> str:
    """A word of --keep, NAME=PATH or PATH, its path in the spelling that runs record."""
    name, named, path = keep.rpartition("=")
    return f"{name}{named}{recorded(path)}"


def without_addresses(words: Sequence[str]) -> list[str]:
    """The words of `tools.NAME.serve` without ports, which each start may choose anew."""
    return [_ADDRESS.sub("", word) for word in words]


def _owner(output: Path) -> str:
    """Name of the collection's tool sessions, the same at every start.

    So the sessions of a killed process are closed.
    """
    return "sample-" + hashlib.sha256(str(output.resolve()).encode()).hexdigest()[:24]
