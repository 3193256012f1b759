"""Two runs on one sampler: one of them ends with a sentence, and they do not fight over it."""

from __future__ import annotations

import asyncio

import pytest

from engine.config import EngineTable
from engine.errors import SharedSampler
from engine.serving.serve import Engine
from tests.integration.engine.conftest import MakeWorld
from tests.support.recipes import ONE, merged, write_recipe
from tests.support.tools import ToolDouble, add_up
from tests.support.waiting import until
from toolwright.recipe import load_recipe
from toolwright.tool.v1 import tool_pb2 as pb

pytestmark = pytest.mark.quick


async def test_a_run_whose_sampler_another_run_takes_ends_and_says_so(world: MakeWorld) -> None:
    pause = asyncio.Event()

    async def slow(request: pb.CallToolRequest) -> pb.CallResult:
        await pause.wait()
        return add_up(request)

    here = await world(tools=ToolDouble(slow), run=ONE)
    recipe = load_recipe(write_recipe(here.folder, here.tables))
    first = asyncio.create_task(Engine(recipe, recipe.table("engine", EngineTable)).run())
    await here.tools.called.wait()  # its trajectory is between two turns
    ours = here.sampler.scheduler.weight_version
    other = merged(here.tables, {"run": {"folder": "other", "engine": "127.0.0.1:1"}})
    other["engine"] = {**other["engine"], "listen": "unix:" + str(here.folder / "other.sock")}
    taken = load_recipe(write_recipe(here.folder / "second", merged(other, {})))
    second = Engine(taken, taken.table("engine", EngineTable))
    running = asyncio.create_task(second.run())
    await until(lambda: here.sampler.scheduler.weight_version != ours, "the other run's weights")
    pause.set()
    with pytest.raises(BaseExceptionGroup) as ended:
        await asyncio.wait_for(first, 30)
    (error,) = leaves(ended.value)
    assert isinstance(error, SharedSampler)
    theirs = here.sampler.scheduler.weight_version
    assert f"changed the weights of {here.sampler.url} (they are {theirs} now" in str(error)
    assert "give each run its own sampler.endpoints" in str(error)
    second.stop()
    await asyncio.wait_for(running, 30)
    assert here.sampler.scheduler.weight_version == theirs


def leaves(error: BaseException) -> list[BaseException]:
    if not isinstance(error, BaseExceptionGroup):
        return [error]
    return [leaf for inner in error.exceptions for leaf in leaves(inner)]
