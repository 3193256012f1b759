"""`engine check`: everything about a recipe that can be known before a run starts."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from engine.build import (
    build_codec,
    build_group_hook,
    build_protocol,
    build_rewards,
    build_tools,
    open_source,
)
from engine.config import EngineTable
from engine.errors import StartupError
from engine.lanes.evaluation.tasks import SuiteTasks
from engine.protocols import Protocol
from engine.rehearsal import first_that_fits
from engine.sampler.pool import SamplerPool
from engine.sampler.server import Server
from engine.text.codec import HuggingFaceCodec
from toolwright.recipe import Recipe, check_all
from toolwright.recipe.remarks import remarks

BAD_ROWS_SHOWN = 5


def check(recipe: Recipe, table: EngineTable, *, connect: bool) -> Iterator[str]:
    """Lines of what is in order, each as soon as it is known. StartupError or RecipeError for the
    first thing that is not."""
    yield f"tables: {', '.join(recipe.raw)}"
    for name in check_all(recipe):
        yield f"table [{name}] is not checked: its package is not installed"
    yield from remarks(recipe)
    shared = recipe.shared
    codec = build_codec(recipe)
    yield f"policy: vocabulary {codec.vocab_size}, end of turn {codec.end_of_turn!r}"
    protocol = build_protocol(recipe)
    build_rewards(recipe)
    build_group_hook(recipe)
    yield from asyncio.run(_sources(recipe, table, protocol, codec))
    if connect:
        yield from asyncio.run(_connect(recipe, codec))
    else:
        asked = ", ".join(("samplers", *(f"tools.{name}" for name in shared.tools)))
        yield f"not asked: {asked} (--connect asks them)"


async def _sources(
    recipe: Recipe, table: EngineTable, protocol: Protocol, codec: HuggingFaceCodec
) -> list[str]:
    source = await open_source(recipe, max_bad_rows=table.max_bad_rows)
    drawn, tokens = await first_that_fits(source, protocol, codec)
    task = drawn.task
    lines = [
        f"first prompt: {tokens} tokens without tools",
        f"first task: {task.id}: {(task.prompt or str(task.messages[-1]))[:120]}",
    ]
    room = recipe.shared.task.limits.model
    if tokens >= room:
        lines.append(
            f"warning: the first prompt has {tokens} tokens and task.limits.model is {room}: no "
            "token is left for an answer"
        )
    if source.bad_rows:
        lines.append(f"task source: {source.bad_rows} of {source.rows} rows are no tasks")
        lines += [f"  {row}" for row in source.first_bad_rows(BAD_ROWS_SHOWN)]
    source.close()
    for suite in table.evaluation.suites:
        tasks = SuiteTasks(suite, recipe.folder, max_bad_rows=table.max_bad_rows)
        await tasks.open()
        tasks.close()
        lines.append(f"evaluation {suite.name}: {suite.n} tasks")
    return lines


async def _connect(recipe: Recipe, codec: HuggingFaceCodec) -> list[str]:
    shared = recipe.shared
    pool = SamplerPool(shared.sampler, codec, vocab_size=codec.vocab_size)
    services = build_tools(recipe, "check")
    try:
        await pool.open()
        lines = [_sampler_line(server) for server in pool.servers]
        for name, tools in (await services.open()).items():
            listed = ", ".join(tool.name for tool in tools)
            lines.append(f"tools.{name} at {shared.tools[name].where}: {listed}")
    finally:
        await pool.close()
        await services.close()
    return lines


def _sampler_line(server: Server) -> str:
    """StartupError for one that does not answer: a run would go on without it, a check says so."""
    if server.info is None:
        raise StartupError(
            f"sampler {server.name} is down or is no SGLang server ({server.why}); start it or "
            "correct sampler.endpoints"
        )
    return f"sampler {server.name}: SGLang {server.info.version}"
