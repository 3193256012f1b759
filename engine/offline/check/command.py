"""`engine check`: everything about a recipe that can be known before a run starts."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping

from engine.config import EngineTable, RenderTable
from engine.core.branching.branching_checks import branching_warnings, check_top_k
from engine.core.build import (
    build_codec,
    build_group_hook,
    build_protocol,
    build_rewards,
    build_tools,
    open_source,
    refuse_api,
    task_recipes,
)
from engine.core.protocols import Protocol
from engine.core.rehearsal import first_that_fits
from engine.core.rollout.view import prompt_ids
from engine.core.sampler.adapters import refuse_without_adapters
from engine.core.sampler.context import check_context
from engine.core.sampler.pool import SamplerPool
from engine.core.sampler.server import Server
from engine.core.tasks import TaskSource
from engine.core.tasks.training_questions import TrainingQuestions
from engine.core.text.codec import HuggingFaceCodec, read_config
from engine.core.tools.services import ToolServices
from engine.core.tools.tool_file_check import check_tool_files
from engine.errors import AttemptFailed, StartupError, TaskUnfit
from engine.offline.check.agents import agent_lines
from engine.offline.check.budgets import budget_lines
from engine.offline.check.recipe_warnings import (
    call_warnings,
    context_warnings,
    prompt_warnings,
    question_of,
    sampling_warnings,
)
from engine.offline.check.remarks import LEFT_OUT, WARNING, remarks
from engine.offline.check.template_report import agents_report, template_report
from engine.offline.check.warm_up import warm_up_warnings
from engine.offline.missing_inputs import producer_of, producer_of_source, stand_in_for_policy
from engine.serving.evaluation.lane import check_suites, check_tasks
from engine.serving.evaluation.suite import limits_of
from engine.serving.evaluation.suite_tasks import SuiteTasks
from engine.serving.journal.identity import policy_identity
from toolwright.model.beginning import first_policy
from toolwright.process.run_folder import folder_fault
from toolwright.recipe import SUBMITTED, Recipe, check_all, task_key
from toolwright.recipe.open_ports import is_open, open_ports
from toolwright.rpc.auth import tokens_here
from toolwright.rpc.server import Server as Listener

BAD_ROWS_SHOWN = 5
QUESTION_SHOWN = 120
"""Longest quotation of the first question, in characters."""
PATIENCE_S = 15.0
"""Seconds to wait for an unreachable service: a check should report it soon."""


def check(recipe: Recipe, table: EngineTable, *, connect: bool) -> Iterator[str]:
    """One line for each part that is in order, as soon as it is known.

    Raises StartupError or RecipeError for the first part that is not. A missing input that the
    recipe itself produces is no error: checks that need it are left out with a line. So are ports
    that `toolwright run` chooses.
    """
    refuse_api(recipe, "`engine check` of a training run")
    yield f"tables: {', '.join(recipe.raw)}"
    for name in check_all(recipe):
        yield f"table [{name}] is not checked: its package is not installed"
    yield from remarks(recipe)
    yield from (WARNING + line for line in sampling_warnings(recipe))
    if fault := folder_fault(recipe.run_folder):
        raise StartupError(fault)
    for key in dict.fromkeys(key for key, _sentence in open_ports(recipe.shared)):
        yield f"{key}: port 0, chosen by `toolwright run`; other commands need it named"
    first = first_policy(recipe)
    producer = producer_of(recipe, first)
    like = stand_in_for_policy(recipe) if producer else first
    codec = build_codec(recipe, like) if like else None
    if codec:
        suffix = f" (of {like})" if producer else ""
        for task in recipe.shared.each_task.values():
            check_top_k(task.branching, codec.vocab_size)
        ends = ", also ".join(map(repr, codec.turn_ends))
        yield f"policy: vocabulary {codec.vocab_size}, end of turn {ends}{suffix}"
    if producer:
        lost = "its weights" if codec else "tokenizer, chat template, first prompt, samplers"
        yield f"{LEFT_OUT}{lost}: {first} is not there yet, `toolwright run` makes it by {producer}"
    else:
        if not any(first.glob("*.safetensors")):
            yield f"policy: {first} holds no weights yet (*.safetensors)"
        policy_identity(first)
    if recipe.shared.tasks:
        shares = (f"{groups} of {name}" for name, groups in recipe.shared.allotment.items())
        yield f"groups of a batch: {', '.join(shares)}"
    tasks = task_recipes(recipe)
    check_tasks(table.evaluation.suites, tasks)
    for own in tasks.values():
        build_rewards(own)
        build_group_hook(own)
    protocols = {name: build_protocol(own) for name, own in tasks.items()}
    if codec:
        for is_warning, line in template_report(codec, protocols):
            yield f"{WARNING}{line}" if is_warning else line
        agents = any(task.agent is not None for task in recipe.shared.each_task.values())
        if agents or "ingress" in recipe.raw:
            for is_warning, line in agents_report(codec):
                yield f"{WARNING}{line}" if is_warning else line
        found = context_warnings(recipe, table, read_config(recipe.resolve(like or first)))
        yield from (WARNING + line for line in found)
    yield from asyncio.run(_sources(recipe, table, protocols, codec))
    if codec and "render" in recipe.raw:
        rendering = recipe.table("render", RenderTable)
        for line in asyncio.run(warm_up_warnings(recipe, rendering, codec)):
            yield WARNING + line
    yield from (WARNING + line for line in asyncio.run(check_tool_files(recipe)))
    yield from agent_lines(recipe)
    if connect:
        yield from asyncio.run(_connect(recipe, table, codec))
    else:
        left = ", ".join(("samplers", *(f"tools.{name}" for name in recipe.shared.tools)))
        yield f"not contacted: {left} (--connect contacts them)"


async def _sources(
    recipe: Recipe,
    table: EngineTable,
    protocols: Mapping[str, Protocol],
    codec: HuggingFaceCodec | None,
) -> list[str]:
    Listener(table.listen or recipe.shared.run.engine, tokens=tokens_here())
    lines = []
    training = TrainingQuestions()
    for name, own in task_recipes(recipe).items():
        source = own.shared.task.source
        if producer := producer_of_source(recipe, source):
            lines.append(_source_left_out(f"{task_key(name)}.source", source, producer))
        else:
            lines += await _training_source(own, table, protocols[name], codec, name, training)
    for suite in table.evaluation.suites:
        if producer := producer_of_source(recipe, suite.source):
            lines.append(_source_left_out(f"evaluation {suite.name}", suite.source, producer))
            continue
        tasks = SuiteTasks(suite, recipe.folder, max_bad_rows=table.max_bad_rows)
        await tasks.open()
        lines.append(f"evaluation {suite.name}: {suite.n} tasks")
        if suite.limits is not None:
            limits = limits_of(suite, recipe.shared.each_task[suite.task].limits)
            lines += budget_lines(limits, 0, f"evaluation {suite.name}, limits")
        if tasks.file is not None:
            gives = _gives_metadata(recipe)
            lines += _row_lines(f"evaluation {suite.name}", tasks.file, gives_metadata=gives)
        for warning in (
            training.shared_with(suite, tasks.questions),
            tasks.one_source_of_several(),
        ):
            if warning:
                lines.append(f"{WARNING}evaluation {suite.name}: {warning}")
        tasks.close()
    return lines


async def _training_source(
    recipe: Recipe,
    table: EngineTable,
    protocol: Protocol,
    codec: HuggingFaceCodec | None,
    name: str,
    training: TrainingQuestions,
) -> list[str]:
    """Lines about the source of a task. name: the task's, "" in a recipe with one.

    training: gets the questions.
    """
    suffix = f" of tasks.{name}" if name else ""
    key = f"{task_key(name)}.limits"
    if recipe.shared.task.source == SUBMITTED:
        remarks = budget_lines(recipe.shared.task.limits, 0, key)
        return [f"task source{suffix}: tasks that clients submit (`engine submit`)", *remarks]
    source = await open_source(recipe, max_bad_rows=table.max_bad_rows)
    lines, tokens = [], 0
    if codec is None:
        task = (await anext(source.first(1))).task
    else:
        drawn, tokens = await first_that_fits(source, protocol, codec)
        task = drawn.task
        lines.append(
            f"first prompt{suffix}: {tokens} tokens; where the prompt describes the tools, their "
            "descriptions come on top"
        )
        prompt = codec.decode(prompt_ids(protocol, task, (), codec))
        lines += (WARNING + line for line in prompt_warnings(suffix, task, prompt))
        # Demonstrations teach the form of a call.
        if recipe.shared.used_tools and "render" not in recipe.raw:
            found = call_warnings(suffix, protocol, codec, task, prompt)
            lines += (WARNING + line for line in found)
        room = recipe.shared.task.limits.model
        if tokens >= room:
            lines.append(
                f"{WARNING}the first prompt{suffix} has {tokens} tokens and "
                f"{task_key(name)}.limits.model is {room}: "
                f"no token is left for an answer; raise {task_key(name)}.limits.model"
            )
    lines += budget_lines(recipe.shared.task.limits, tokens, key)
    question = " ".join(question_of(task)[:QUESTION_SHOWN].split())
    lines.append(f"first task{suffix}: {task.id}: {question}")
    gives = _gives_metadata(recipe)
    lines += _row_lines(f"task source{suffix}", source, gives_metadata=gives)
    if recipe.shared.run.steps != 0:
        training.add(recipe, source)
    source.close()
    return lines


def _gives_metadata(recipe: Recipe) -> bool:
    """Whether tool services or outside agents get the metadata of tasks."""
    return bool(recipe.shared.used_tools) or any(
        task.agent for task in recipe.shared.each_task.values()
    )


def _row_lines(name: str, source: TaskSource, *, gives_metadata: bool) -> Iterator[str]:
    """Warnings about a file's rows, and its first rows that are not tasks."""
    yield from (f"{WARNING}{name}: {sentence}" for sentence in source.warnings())
    if gives_metadata and (sentence := source.answers_in_metadata()):
        yield f"{WARNING}{name}: {sentence}"
    if source.bad_rows:
        yield f"{WARNING}{name}: {source.bad_rows} of {source.rows} rows are not tasks"
        yield from (f"  {row}" for row in source.first_bad_rows(BAD_ROWS_SHOWN))


def _source_left_out(name: str, source: str, producer: str) -> str:
    return f"{LEFT_OUT}{name}: {source} is not there yet, `toolwright run` makes it by {producer}"


async def _connect(recipe: Recipe, table: EngineTable, codec: HuggingFaceCodec | None) -> list[str]:
    """Contacts all samplers and services with a known address."""
    shared = recipe.shared
    urls = tuple(url for url in shared.sampler.endpoints if not is_open(url))
    lines = await _check_samplers(recipe, table, codec, urls) if codec and urls else []
    chosen = [name for name, tool in shared.tools.items() if is_open(tool.service)]
    services = build_tools(recipe, "check", but=chosen, patience_s=PATIENCE_S)
    try:
        found = await services.open()
        for task in shared.each_task.values():
            every = [tool for name in task.tools or shared.tools for tool in found.get(name, ())]
            lines += (WARNING + line for line in branching_warnings(task.branching, every))
        for name, tools in found.items():
            listed = ", ".join(tool.name for tool in tools)
            where = shared.tools[name].where
            lines.append(f"tools.{name} at {where}: {listed or 'tools of each session'}")
        for name, own in task_recipes(recipe).items():
            used = own.shared.task.tools or own.shared.tools
            if any(tool in found and not found[tool] for tool in used):
                lines += await _first_session(own, table, services, name)
    finally:
        await services.close()
    return lines


async def _first_session(
    recipe: Recipe, table: EngineTable, services: ToolServices, name: str
) -> list[str]:
    """Opens a session for the first task and lists its tools.

    Services that make tools from the task are checked by that alone. name: the task's, "" in a
    recipe with one.
    """
    source_name = recipe.shared.task.source
    if source_name == SUBMITTED or producer_of_source(recipe, source_name):
        return []
    source = await open_source(recipe, max_bad_rows=table.max_bad_rows)
    try:
        task = (await anext(source.first(1))).task
    finally:
        source.close()
    try:
        environment = await services.open_session(f"first{name}", task)
    except (AttemptFailed, TaskUnfit) as error:
        raise StartupError(f"no session opens for the first task, {task.id}: {error}") from error
    listed = ", ".join(tool.name for tool in environment.tools)
    environment.close()
    suffix = f" of tasks.{name}" if name else ""
    return [f"first session{suffix}: {listed or 'no tools'}"]


async def _check_samplers(
    recipe: Recipe, table: EngineTable, codec: HuggingFaceCodec, urls: tuple[str, ...]
) -> list[str]:
    shared = recipe.shared
    sampler = shared.sampler.model_copy(update={"endpoints": urls})
    pool = SamplerPool(sampler, codec, vocab_size=codec.vocab_size)
    try:
        await pool.open()
        lines = [_sampler_line(server) for server in pool.servers]
        if shared.run.publish_adapters:
            refuse_without_adapters(pool)
        limits = {name: task.limits for name, task in shared.each_task.items()}
        for name, own in limits.items():
            check_context(f"{task_key(name)}.limits.model", own.model, pool.longest_prompt)
        check_suites(table.evaluation.suites, limits, pool.longest_prompt)
    finally:
        await pool.close()
    return lines


def _sampler_line(server: Server) -> str:
    """Raises StartupError for a server that does not answer; a run would go on without it."""
    if server.info is None:
        raise StartupError(
            f"sampler {server.name} is down or is no SGLang server ({server.why}): start it or "
            "correct sampler.endpoints"
        )
    return f"sampler {server.name}: SGLang {server.info.version}"
