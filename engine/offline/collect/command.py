"""`engine sample`: trajectories of a recipe's tasks without a learner, for `learner sft`."""

from __future__ import annotations

import asyncio
import hashlib
import re
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path

import typer

from engine.config import EngineTable
from engine.core.build import (
    build_codec,
    build_group_hook,
    build_protocol,
    build_rewards,
    build_sampling,
    build_tools,
    refuse_api,
)
from engine.core.rollout.assignment import Surroundings, stored_nowhere
from engine.core.rollout.decide import Rules
from engine.core.sampler.context import check_context
from engine.core.sampler.pool import SamplerPool
from engine.core.tasks import TaskSource
from engine.core.text.codec import HuggingFaceCodec
from engine.core.trajectory.log import keep_nothing
from engine.errors import EngineError, StartupError
from engine.offline.collect.budget import Budget, Prices
from engine.offline.collect.collector import Collector, Dedupe, Plan
from engine.offline.collect.keep import Criteria
from engine.offline.collect.layouts import Layout
from engine.offline.collect.messages import tellable
from engine.offline.collect.report import Told
from engine.offline.collect.store import Store
from engine.offline.exits import tell_people
from engine.offline.fixed_weights import fix
from engine.offline.resume_settings import short
from engine.offline.stopping import until_stopped
from engine.serving.admission.group import Lane
from engine.serving.admission.places import Places
from engine.serving.telemetry.logs import log_to
from toolwright.imports import recorded
from toolwright.recipe import Recipe, refuse_open_ports

PROGRESS_SECONDS = 5.0
KEEP_THREADS = 8
_ADDRESS = re.compile(r"(?<=//)[^/]+|(?:[A-Za-z0-9_.-]+|\[[0-9a-f:]+\]):[0-9]{1,5}(?=/|$)")
"""HOST:PORT in a word of `tools.NAME.serve`, which may be another in each life."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What the command line says. tasks: "" = task.source. keep: NAME=PATH or PATH. export: each
    layout once. shard_size: trajectories; None = one file. Paths are relative to `folder`, where
    the command was given."""

    output: Path
    folder: Path
    tasks: str = ""
    n: int | None = None
    per_task: int = 1
    keep: tuple[str, ...] = ()
    dedupe: Dedupe = Dedupe.ACTIONS
    most_per_task: int | None = None
    shard_size: int | None = None
    export: tuple[Layout, ...] = ()
    budget: Budget = field(default_factory=Budget)
    prices: Prices = field(default_factory=Prices)


async def sample_and_tell(recipe: Recipe, table: EngineTable, options: Options) -> None:
    """`engine sample`: progress and the log beside the output, the summary on standard output."""
    refuse_open_ports(recipe, "sampler", "tools")
    refuse_api(recipe, "`engine sample`")
    if options.output.name in ("", ".."):
        raise StartupError(f"--output {options.output}: name a file, or a folder of its own")
    log_to(options.output.with_name(options.output.name + ".log.jsonl"))
    typer.echo(await sample(recipe, table, options, tell_people))


async def sample(
    recipe: Recipe, table: EngineTable, options: Options, show: Callable[[str], None]
) -> str:
    """Collects, and returns the summary. EngineError for what cannot go on, Stopped by a signal."""
    return await until_stopped(_sample(recipe, table, options, show))


async def _sample(
    recipe: Recipe, table: EngineTable, options: Options, show: Callable[[str], None]
) -> str:
    shared = recipe.shared
    async with AsyncExitStack() as stack:
        protocol = build_protocol(recipe)
        if options.export and not tellable(protocol):
            raise StartupError(
                f"--export {options.export[0]}: trajectories of {shared.task.protocol} cannot be "
                "told as chat messages, those of Chat and Tagged can"
            )
        rewards, hook = build_rewards(recipe), build_group_hook(recipe)
        stack.callback(rewards.close)
        criteria = None
        if options.keep:
            criteria = Criteria(
                options.keep,
                options.folder,
                seconds=shared.task.reward_seconds,
                threads=KEEP_THREADS,
            )
            stack.callback(criteria.close)
        codec = build_codec(recipe)
        source = await TaskSource.opened(
            options.tasks or shared.task.source,
            options.folder if options.tasks else recipe.folder,
            seed=shared.run.seed,
            shuffle=False,
            max_bad_rows=table.max_bad_rows,
        )
        stack.callback(source.close)
        pool = SamplerPool(shared.sampler, codec, vocab_size=codec.vocab_size)
        stack.push_async_callback(pool.close)
        await pool.open()
        check_context("task.limits.model", shared.task.limits.model, pool.longest_prompt)
        served = fix(pool)
        store = Store(options.output, layouts=options.export, shard_size=options.shard_size)
        stack.callback(store.close)
        paths = criteria.paths if criteria else {}
        await store.open(_settings(recipe, options, paths, codec, source, served.name))
        services = build_tools(recipe, _owner(options.output))
        stack.push_async_callback(services.close)
        await services.open()
        await services.close_strangers(())
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
        lane = Lane(
            surroundings=surroundings,
            rewards=rewards,
            hook=hook,
            places=Places(table.max_concurrent),
            life=f"t{time.time_ns() // 1_000_000:x}",
            patience=table.patience_s,
            keeper=keep_nothing,
            forget=lambda _attempt: None,
            stored=stored_nowhere,
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
        collector = Collector(lane, source, store, plan)
        told = Told(store, collector, paths, options.prices, rewards.failures)
        stack.callback(told.keep_yield)
        show(f"[     0 s] {told.beginning()}, weights {served.name}")
        async with asyncio.TaskGroup() as group:
            beside = [
                group.create_task(one)
                for one in (
                    pool.keep_alive(),
                    services.keep_leases(),
                    services.keep_processes(),
                    _report(told, show),
                )
            ]
            await collector.run()
            for task in beside:
                task.cancel()
        store.finish()
        if store.totals.no_reward:
            show(told.summary())
            raise EngineError(
                "the reward function failed for every trajectory, so nothing was kept: correct "
                f"{shared.task.reward}, then collect into another --output"
            )
        return told.summary()


async def _report(told: Told, show: Callable[[str], None]) -> None:
    while True:
        await asyncio.sleep(PROGRESS_SECONDS)
        show(told.line())
        told.keep_yield()


def _settings(
    recipe: Recipe,
    options: Options,
    criteria: Mapping[str, str],
    codec: HuggingFaceCodec,
    source: TaskSource,
    weights: str,
) -> dict[str, str]:
    """What one collection has in common, by names for a sentence. What may change between two lives
    is left out: --n, addresses, time limits and numbers of processes."""
    shared, identity = recipe.shared, source.identity
    task = shared.task
    said = {
        "protocol": [recorded(task.protocol), task.protocol_options],
        "reward": [task.reward, task.reward_per_group, task.group_hook, sorted(task.stops.items())],
        "masks": [task.mask_overlong, task.mask_void],
        **({"length": task.overlong.model_dump()} if task.overlong else {}),
        "limits": task.limits.model_dump(exclude={"seconds"}),
        "sampling": asdict(build_sampling(recipe)),
        "tools": sorted((name, shared.tools[name].names) for name in task.tools or shared.tools),
    }
    served = {
        name: without_addresses(words)
        for name in task.tools or shared.tools
        if (words := shared.tools[name].serve)
    }
    files = {
        name: hashlib.sha256((options.folder / where).read_bytes()).hexdigest()[:12]
        for name, path in criteria.items()
        if (where := path.rpartition(":")[0]).endswith(".py")
    }
    beside = {
        "reward options": task.reward_options,
        "group hook options": task.group_hook_options,
        "serve": served,
        "files of criteria": files,
    }
    said |= {name: value for name, value in beside.items() if value}
    return {
        "tasks": f"{identity.name} {identity.sha256[:12] or f'seed {identity.seed}'}",
        "weights": weights,
        "policy": codec.hash[:12],
        "--per-task": str(options.per_task),
        "--most-per-task": str(options.most_per_task or "all"),
        "--keep": ", ".join(map(_recorded, options.keep)) or "all",
        "--dedupe": str(options.dedupe),
        "--shard-size": str(options.shard_size or "one file"),
        "--export": ", ".join(options.export) or "none",
        **{name: short(value) for name, value in said.items()},
    }


def _recorded(keep: str) -> str:
    """A word of --keep, NAME=PATH or PATH, its path in the spelling that runs record."""
    name, named, path = keep.rpartition("=")
    return f"{name}{named}{recorded(path)}"


def without_addresses(words: Sequence[str]) -> list[str]:
    """Of `tools.NAME.serve`: the same in each life of a run that takes any free port."""
    return [_ADDRESS.sub("", word) for word in words]


def _owner(output: Path) -> str:
    """The same for every life of one collection, so that sessions of a killed one are closed."""
    return "sample-" + hashlib.sha256(str(output.resolve()).encode()).hexdigest()[:24]
