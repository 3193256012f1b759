"""A learner that publishes over a group of processes, as scripted samplers meet it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Protocol

from bench.scripted.update_group import Rank0
from tests.support.engines import Learner, Running
from toolwright import wire
from toolwright.policy.v1 import policy_pb2 as pb
from toolwright.rpc.channel import call
from toolwright.types import WeightVersion

LEASE_S = 60.0
SIZES = {"a": 16, "b": 32, "c": 8}
"""Bytes of the policy's tensors, float32."""


def metas(names: Sequence[str]) -> list[pb.TensorMeta]:
    """The policy's tensors as a bucket names them."""
    return [pb.TensorMeta(name=name, dtype="float32", shape=[SIZES[name] // 4]) for name in names]


class Root(Protocol):
    """The learner's process in a group."""

    @property
    def port(self) -> int: ...


@dataclass(slots=True, kw_only=True)
class Publish:
    """The RPCs of one publish. `root` is the learner's side of its group."""

    learner: Learner
    root: Root
    name: str = ""
    id: str = ""
    world_size: int = 0

    async def begin(
        self, version: WeightVersion, *, lease: float = LEASE_S, port: int | None = None
    ) -> None:
        request = pb.BeginPublishRequest(
            version=wire.version_to_proto(version),
            master_address="127.0.0.1",
            master_port=self.root.port if port is None else port,
            backend="gloo",
            lease=wire.duration(lease),
            learner=self.name,
        )
        answer = await call(self.learner.policy.BeginPublish, request, timeout=60)
        self.id, self.world_size = answer.publish_id, answer.world_size

    async def ask(self, index: int, tensors: Sequence[pb.TensorMeta]) -> None:
        """The RPC alone: nothing is broadcast."""
        request = pb.PublishBucketRequest(publish_id=self.id, index=index, tensors=tensors)
        await call(self.learner.policy.PublishBucket, request, timeout=60)

    async def commit(self) -> pb.CommitPublishResponse:
        request = pb.CommitPublishRequest(publish_id=self.id)
        return await call(self.learner.policy.CommitPublish, request, timeout=60)

    async def abort(self) -> None:
        request = pb.AbortPublishRequest(publish_id=self.id)
        await call(self.learner.policy.AbortPublish, request, timeout=30)


@dataclass(slots=True, kw_only=True)
class Broadcast(Publish):
    """One publish of the tensors of SIZES by a learner in this process."""

    root: Rank0

    async def bucket(self, index: int, *names: str) -> None:
        """Asks, and broadcasts once the group stands."""
        asked = asyncio.create_task(self.ask(index, metas(names)))
        await self.root.joined()
        await self.root.broadcast([SIZES[name] for name in names])
        await asked


@asynccontextmanager
async def broadcast(
    run: Running, step: int | None = None, *names: str, learner: str = "", lease: float = LEASE_S
) -> AsyncIterator[Broadcast]:
    """A publish of a step, which has begun, and whose first bucket holds `names`.

    step: None for a publish that has not begun. learner: the id that it names. The learner's
    process of the group ends with the block.
    """
    async with Rank0() as root:
        publish = Broadcast(learner=run.learner, root=root, name=learner)
        if step is not None:
            await publish.begin(run.at(step), lease=lease)
        if names:
            await publish.bucket(0, *names)
        yield publish


async def publish_whole(run: Running, step: int, learner: str = "") -> pb.CommitPublishResponse:
    """A publish from its beginning to its end, in two buckets."""
    async with broadcast(run, step, "a", "b", learner=learner) as publish:
        await publish.bucket(1, "c")
        return await publish.commit()
