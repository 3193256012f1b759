"""What rollouts without a learner need around them: tool sessions and background work.

`engine eval` and `engine sample` share it. The weights never change here, so nothing is published.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from engine.config import EngineTable
from engine.core.build import build_tools
from engine.core.protocols import Protocol
from engine.core.rollout.assignment import Surroundings
from engine.core.rollout.decide import Rules
from engine.core.sampler.asking import PolicySampler
from engine.offline.evaluate.policy import PolicyCodec
from toolwright.recipe import Recipe


async def open_surroundings(
    stack: AsyncExitStack,
    recipe: Recipe,
    table: EngineTable,
    *,
    protocol: Protocol,
    codec: PolicyCodec,
    pool: PolicySampler,
    owner: str,
) -> Surroundings:
    """Connects the recipe's tool services; `stack` closes them. Raises StartupError.

    owner: name of this work's tool sessions. Sessions that a killed process left are closed.
    """
    services = build_tools(recipe, owner)
    stack.push_async_callback(services.close)
    await services.open()
    await services.close_strangers(())
    return Surroundings(
        rules=Rules(
            protocol=protocol,
            codec=codec,
            limits=recipe.shared.task.limits,
            observation_keep=table.observation_keep,
        ),
        pool=pool,
        tools=services,
        tokenizer_hash=codec.hash,
    )


@asynccontextmanager
async def upkeep(
    surroundings: Surroundings, *reports: Coroutine[Any, Any, None]
) -> AsyncIterator[None]:
    """Keeps samplers and tool services alive while the block runs.

    reports: further endless work, cancelled at the end of the block. An error of any of them
    cancels the block and is raised in a BaseExceptionGroup.
    """
    tools = surroundings.tools
    async with asyncio.TaskGroup() as group:
        tasks = [
            group.create_task(one)
            for one in (
                surroundings.pool.keep_alive(),
                tools.keep_leases(),
                tools.keep_processes(),
                *reports,
            )
        ]
        yield
        for task in tasks:
            task.cancel()
