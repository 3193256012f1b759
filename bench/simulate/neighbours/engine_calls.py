"""The learner's calls to the engine of the current life, with the errors of a real channel."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc.aio

from bench.simulate.neighbours.channel import Context, rpc_error
from bench.simulate.playing.engine_life import EngineLife
from bench.simulate.virtual.loop import Gone
from toolwright import wire
from toolwright.common.v1 import trajectory_pb2
from toolwright.rollout.v1 import rollout_pb2 as rollout
from toolwright.rpc.errors import TransportError, from_rpc_error

RPC_S = 200.0

LeasedGroup = tuple[trajectory_pb2.GroupInfo, list[trajectory_pb2.Trajectory], str]
"""(group, its members, SHA-256 of the members' bytes)."""


class EngineCalls:
    """Calls of the engine's servicers. Raises ServiceError and TransportError, as a client does."""

    def __init__(self, engine: Callable[[], EngineLife | None]) -> None:
        self._engine = engine

    async def once(self, which: int, method: str, request: Any) -> Any:
        """The answer to one request. which: number of the servicer."""
        life = self._serving()
        try:
            async with asyncio.timeout(RPC_S):
                servicer: Any = life.engine.servicers[which] if life.engine.servicers else None
                return await life.ask(getattr(servicer, method)(request, Context()))
        except (grpc.aio.AbortError, Gone, TimeoutError) as error:
            raise from_rpc_error(rpc_error(error)) from error

    async def leased(self, request: rollout.LeaseGroupsRequest) -> AsyncIterator[LeasedGroup]:
        """The groups of one lease."""
        life = self._serving()
        servicer = life.engine.servicers[0] if life.engine.servicers else None
        if servicer is None:
            raise AssertionError("an engine that serves has servicers")
        stream = servicer.LeaseGroups(request, Context())
        members: list[trajectory_pb2.Trajectory] = []
        digest = hashlib.sha256()
        while True:
            try:
                item = await life.ask(_next(stream))
            except (grpc.aio.AbortError, Gone) as error:
                raise from_rpc_error(rpc_error(error)) from error
            if item is None:
                return
            item = rollout.LeaseGroupsResponse.FromString(item.SerializeToString())
            if item.HasField("trajectory"):
                members.append(item.trajectory)
                digest.update(wire.serialize(item.trajectory))
                continue
            yield item.group, members, digest.hexdigest()
            members, digest = [], hashlib.sha256()

    def _serving(self) -> EngineLife:
        life = self._engine()
        if life is None or not life.serves:
            raise TransportError(grpc.StatusCode.UNAVAILABLE, "no engine")
        return life


async def _next(stream: Any) -> Any:
    return await anext(stream, None)
