"""Background work beside rollouts without a learner."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any

from engine.core.engine_core import EngineCore


@asynccontextmanager
async def upkeep(core: EngineCore, *reports: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Keeps samplers and tool services alive while the block runs.

    reports: further endless work, cancelled at the end of the block. An error of any of them
    cancels the block and is raised in a BaseExceptionGroup.
    """
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(one) for one in (*core.upkeep(), *reports)]
        yield
        for task in tasks:
            task.cancel()
