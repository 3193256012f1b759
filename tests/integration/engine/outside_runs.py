"""Engines whose trajectories come from outside agents, for tests over real gRPC."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from tests.integration.engine.conftest import World
from tests.support.engines import Running
from tests.support.ingress_client import IngressClient
from tests.support.recipes import ONE
from toolwright.rpc.channel import open_channel
from toolwright.types import Trajectory

REPORTS: dict[str, Any] = {"agent": {"reward_from": "agent"}}


@asynccontextmanager
async def served(here: World, **changes: Any) -> AsyncIterator[tuple[Running, IngressClient]]:
    changes = {"run": ONE, "engine": {"drain_s": 0.05}, "task": {"agent": {}}, **changes}
    async with (
        here.engine(**changes) as run,
        open_channel(here.tables["run"]["engine"]) as channel,
    ):
        yield run, IngressClient(channel, here.codec)


async def leased(run: Running) -> Trajectory:
    (group,) = await run.learner.lease(run.version)
    (member,) = group.members
    return member
