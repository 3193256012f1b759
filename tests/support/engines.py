"""The engine in the test's own event loop, and its contract as a learner uses it."""

from __future__ import annotations

import asyncio
import os
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import grpc.aio

from engine.config import EngineTable
from engine.serving.seams import Seams
from engine.serving.serve import Engine
from tests.support.waiting import PATIENCE, until
from toolwright import wire
from toolwright.common.v1 import trajectory_pb2
from toolwright.policy.v1 import policy_pb2, policy_pb2_grpc
from toolwright.recipe import load_recipe
from toolwright.rollout.v1 import rollout_pb2, rollout_pb2_grpc
from toolwright.rpc.channel import call, open_channel
from toolwright.rpc.errors import ServiceError, TransportError, from_rpc_error
from toolwright.rpc.options import TOKEN_VARIABLE
from toolwright.types import Trajectory, WeightVersion


@dataclass(frozen=True, slots=True, kw_only=True)
class Leased:
    """A group as it came over the wire; `raw` are its members' messages."""

    info: trajectory_pb2.GroupInfo
    raw: tuple[trajectory_pb2.Trajectory, ...]

    @property
    def members(self) -> tuple[Trajectory, ...]:
        return tuple(wire.trajectory_from_proto(message) for message in self.raw)

    @property
    def hash(self) -> str:
        """The hash of what arrived."""
        return wire.content_hash(wire.serialize(message) for message in self.raw)


class Learner:
    """What a learner asks of an engine; errors arrive as ServiceError or TransportError."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self.rollout = rollout_pb2_grpc.RolloutServiceStub(channel)
        self.policy = policy_pb2_grpc.PolicyServiceStub(channel)

    async def lease(
        self,
        version: WeightVersion | None = None,
        *,
        after: int = 0,
        count: int = 1,
        wait: float = PATIENCE,
    ) -> list[Leased]:
        """Up to `count` groups after a mark; fewer when `wait` seconds bring none.

        version: None for the engine's own.
        """
        request = rollout_pb2.LeaseGroupsRequest(
            consumer=rollout_pb2.CONSUMER_TRAIN,
            after_sequence=after,
            max_groups=count,
            version=wire.version_to_proto(version or await self.version()),
            wait=wire.duration(wait),
        )
        groups: list[Leased] = []
        members: list[trajectory_pb2.Trajectory] = []
        try:
            async for item in self.rollout.LeaseGroups(request, timeout=60):
                if item.HasField("trajectory"):
                    members.append(item.trajectory)
                else:
                    groups.append(Leased(info=item.group, raw=tuple(members)))
                    members = []
        except grpc.aio.AioRpcError as error:
            raise from_rpc_error(error) from error
        assert not members, "a group was not closed"
        return groups

    async def acknowledge(self, sequence: int) -> int:
        request = rollout_pb2.AckGroupsRequest(
            consumer=rollout_pb2.CONSUMER_TRAIN, durable_sequence=sequence
        )
        answer = await call(self.rollout.AckGroups, request, timeout=30)
        return int(answer.durable_sequence)

    async def blob(self, sha256: str) -> bytes:
        """What a segment of a leased trajectory refers to."""
        request = rollout_pb2.GetBlobRequest(sha256=sha256)
        try:
            pieces = [piece.data async for piece in self.rollout.GetBlob(request, timeout=30)]
        except grpc.aio.AioRpcError as error:
            raise from_rpc_error(error) from error
        return b"".join(pieces)

    async def status(self) -> rollout_pb2.GetStatusResponse:
        return await call(self.rollout.GetStatus, rollout_pb2.GetStatusRequest(), timeout=30)

    async def version(self) -> WeightVersion:
        answer = await call(self.policy.GetPolicy, policy_pb2.GetPolicyRequest(), timeout=30)
        return wire.version_from_proto(answer.version)

    async def publish(
        self, version: WeightVersion, path: Path, parent: WeightVersion | None = None
    ) -> policy_pb2.PublishWeightsResponse:
        request = policy_pb2.PublishWeightsRequest(
            version=wire.version_to_proto(version), path=str(path), train_step=version.step
        )
        if parent is not None:
            request.parent.CopyFrom(wire.version_to_proto(parent))
        return await call(self.policy.PublishWeights, request, timeout=60)


@dataclass(slots=True, kw_only=True)
class Running:
    """An engine in this process and a learner beside it.

    version: the weights that it started with.
    """

    engine: Engine
    learner: Learner
    task: asyncio.Task[None]
    folder: Path
    version: WeightVersion

    def at(self, step: int) -> WeightVersion:
        """The version of a step in the lineage of the start."""
        return replace(self.version, step=step)

    async def drain(self) -> None:
        """What SIGTERM does; returns when the engine has ended."""
        self.engine.stop()
        async with asyncio.timeout(PATIENCE):
            await self.task


@asynccontextmanager
async def running(
    recipe_file: Path, *overrides: str, workers: int = 0, seams: Seams | None = None
) -> AsyncIterator[Running]:
    """Serves the recipe until the block ends; the engine must end cleanly.

    Raises what the engine raises at its start.
    """
    recipe = load_recipe(recipe_file, overrides)
    engine = Engine(recipe, recipe.table("engine", EngineTable), workers=workers, seams=seams)
    task = asyncio.create_task(engine.run())
    if not await listening(recipe.shared.run.engine, lambda: not task.done()):
        await task
    channel = open_channel(recipe.shared.run.engine, os.environ.get(TOKEN_VARIABLE, ""))
    try:
        version = await in_order(channel, lambda: not task.done())
        if version is None:
            await task
        assert version is not None, "the engine ended"
        yield Running(
            engine=engine,
            learner=Learner(channel),
            task=task,
            folder=recipe.run_folder,
            version=version,
        )
    finally:
        await channel.close(None)
        engine.stop()
        async with asyncio.timeout(PATIENCE):
            await task


async def listening(address: str, alive: Callable[[], bool], seconds: float = PATIENCE) -> bool:
    """Whether the port opens while `alive`: a gRPC channel that comes too early waits seconds."""
    host, _, port = address.rpartition(":")
    async with asyncio.timeout(seconds):
        while alive():
            try:
                _, writer = await asyncio.open_connection(host, int(port))
            except OSError:
                await asyncio.sleep(0.01)
            else:
                writer.close()
                return True
    return False


async def in_order(channel: grpc.aio.Channel, alive: Callable[[], bool]) -> WeightVersion | None:
    """The version to which the engine has brought its samplers; None if it is not `alive`."""
    learner = Learner(channel)
    async with asyncio.timeout(PATIENCE):
        while alive():
            try:
                return await learner.version()
            except (ServiceError, TransportError):
                await asyncio.sleep(0.01)
    return None


async def started(*words: object, **how: Any) -> Process:
    """`engine WORDS` in a process of its own; how: of `create_subprocess_exec`."""
    command = (sys.executable, "-m", "engine.cli", *map(str, words))
    return await asyncio.create_subprocess_exec(*command, **how)


async def finished(*words: object) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of such a process, which ends within a minute."""
    process = await started(*words, stdout=PIPE, stderr=PIPE)
    try:
        async with asyncio.timeout(PATIENCE):
            out, error = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
    assert process.returncode is not None
    return process.returncode, out.decode(), error.decode()


async def killed_when(
    condition: Callable[[], bool], what: str, *words: object, cwd: Path | None = None
) -> None:
    """Runs `engine WORDS` until the condition holds, and kills it."""
    process = await started(*words, cwd=cwd)
    try:
        await until(condition, what, seconds=5 * PATIENCE)
    finally:
        process.kill()
        await process.wait()
