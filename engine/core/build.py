"""The engine's parts, built as the recipe says, for `engine serve`, `check` and `render` alike.

Only `tools_of` starts processes, and it ends them again.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from inspect import signature
from pathlib import Path

from engine.core.protocols import Protocol
from engine.core.rewards.hook import GroupHook
from engine.core.rewards.rewards import Rewards
from engine.core.rewards.stops import StopRules
from engine.core.tasks import TaskSource
from engine.core.text.codec import HuggingFaceCodec
from engine.core.tools.link.service_link import Connect
from engine.core.tools.process import ToolProcess
from engine.core.tools.services import ToolServices
from engine.errors import StartupError
from engine.types import ToolSpec
from toolwright.imports import ImportPathError, load_object
from toolwright.recipe import Recipe
from toolwright.types import SamplingParams

REPORTED_REWARD = "engine.core.rewards.reported:reported"


def build_protocol(recipe: Recipe) -> Protocol:
    """The recipe's protocol. Raises StartupError, which names the path or option that does not
    fit."""
    table = recipe.shared.task
    try:
        kind = load_object(table.protocol, recipe.folder)
    except ImportPathError as error:
        raise StartupError(f"task.protocol: {error}") from error
    try:
        signature(kind).bind(**table.protocol_options)
    except TypeError as error:
        known = ", ".join(signature(kind).parameters) or "none"
        raise StartupError(f"task.protocol_options: {error} (its options: {known})") from error
    try:
        made: Protocol = kind(**table.protocol_options)
    except (TypeError, ValueError) as error:
        raise StartupError(f"task.protocol_options: {error}") from error
    return made


def build_codec(recipe: Recipe, model: Path | None = None) -> HuggingFaceCodec:
    """Tokenizer and template of the policy, or of another folder. Raises StartupError like the
    codec."""
    policy = recipe.shared.policy
    folder = recipe.resolve(model or policy.model)
    return HuggingFaceCodec(folder, foreign_text=policy.foreign_text, template=policy.template)


def task_recipes(recipe: Recipe) -> dict[str, Recipe]:
    """The recipe of each task, as if it were the only one. The name "" stands for a single task."""
    return {name: recipe.of_task(name) for name in recipe.shared.each_task}


def one_task(recipe: Recipe, name: str, command: str) -> Recipe:
    """The recipe of a single task, for a command that works on one. Raises StartupError if several
    tasks exist and `name` is empty, or if no task has that name."""
    known = ", ".join(recipe.shared.tasks)
    if name and name not in recipe.shared.tasks:
        there = f"the recipe's tasks are {known}" if known else "the recipe has only [task]"
        raise StartupError(f"--task {name}: {there}")
    if known and not name:
        raise StartupError(f"{command} works on one task: set --task to one of {known}")
    return recipe.of_task(name)


def refuse_api(recipe: Recipe, command: str) -> None:
    """Raises StartupError if the recipe samples from an API, which nothing can be trained from."""
    api = recipe.shared.sampler.api
    if api != "sglang":
        raise StartupError(
            f"sampler.api = {api!r} is for `engine eval`, and this is {command}: an API gives "
            "neither token ids nor log-probs of them, and takes no weights; set sampler.api = "
            '"sglang" and name SGLang servers in sampler.endpoints'
        )


def build_sampling(recipe: Recipe) -> SamplingParams:
    """How the policy is sampled in training."""
    table = recipe.shared.sampler
    return SamplingParams(
        temperature=table.temperature,
        top_p=table.top_p,
        top_k=table.top_k,
        min_p=table.min_p,
        repetition_penalty=table.repetition_penalty,
    )


def build_rewards(recipe: Recipe) -> Rewards:
    """The recipe's reward function with its rules for stops."""
    task = recipe.shared.task
    reports = task.agent is not None and task.agent.reward_from != "recipe"
    return Rewards(
        REPORTED_REWARD if reports else task.reward,
        recipe.folder,
        per_group=task.reward_per_group and not reports,
        seconds=task.reward_seconds,
        threads=task.reward_threads,
        rules=StopRules.of(task),
        options=None if reports else task.reward_options,
    )


def build_group_hook(recipe: Recipe) -> GroupHook | None:
    """None where the recipe names none."""
    task = recipe.shared.task
    if not task.group_hook:
        return None
    return GroupHook(
        task.group_hook,
        recipe.folder,
        seconds=task.reward_seconds,
        options=task.group_hook_options,
    )


async def open_source(recipe: Recipe, *, max_bad_rows: int) -> TaskSource:
    """The training tasks. Raises StartupError if they cannot be read."""
    task = recipe.shared.task
    return await TaskSource.opened(
        task.source,
        recipe.folder,
        seed=recipe.shared.run.seed,
        shuffle=task.shuffle,
        max_bad_rows=max_bad_rows,
    )


def build_tools(
    recipe: Recipe,
    owner: str,
    *,
    but: Collection[str] = (),
    patience_s: float = math.inf,
    connect: Connect | None = None,
    life: str = "",
    started: Mapping[str, str] | None = None,
) -> ToolServices:
    """Clients for the [tools.*] tables that the tasks use; a task that names no tables uses all.

    but: tables that are left out. patience_s: longest time to wait for an unreachable service, in
    seconds. connect: as for `Service`. life: as for `Leases`. started: addresses of the services
    under `serve` that another process has started; None = this one starts them. Raises StartupError
    if a TLS file cannot be used.
    """
    shared = recipe.shared
    tables = {name: shared.tools[name] for name in shared.used_tools if name not in but}
    processes = {
        name: ToolProcess(
            name,
            table,
            folder=recipe.folder,
            output=recipe.run_folder / f"tools.{name}.log",
            traces=shared.run.traces,
        )
        for name, table in tables.items()
        if table.serve and started is None
    }
    resolved = {
        name: table.model_copy(
            update={
                field: recipe.resolve(file)
                for field in ("tls_ca", "tls_cert", "tls_key")
                if (file := getattr(table, field)) is not None
            }
            | {"patience_s": min(table.patience_s, patience_s)}
            | ({"service": started[name]} if started and name in started else {})
        )
        for name, table in tables.items()
    }
    of_task = {
        name: [tool for tool in task.tools or shared.tools if tool in tables]
        for name, task in shared.each_task.items()
    }
    return ToolServices(resolved, owner, processes, of_task, connect=connect, life=life)


async def tools_of(recipe: Recipe) -> list[ToolSpec]:
    """Descriptions of the tools of all services, in the recipe's order. Raises StartupError if a
    service does not answer."""
    services = build_tools(recipe, "render")
    try:
        return [tool for tools in (await services.open()).values() for tool in tools]
    finally:
        await services.close()
