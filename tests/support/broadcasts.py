"""A learner that publishes over a group of processes, as scripted samplers meet it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from bench.scripted.update_group import Rank0
from tests.support.engines import Learner
from toolwright import wire
from toolwright.policy.v1 import policy_pb2 as pb
from toolwright.rpc.channel import call
from toolwright.types import WeightVersion

LEASE_S = 20.0
SIZES = {"a": 16, "b": 32, "c": 8}
"""Bytes of the policy's tensors, float32."""


def metas(names: Sequence[str]) -> list[pb.TensorMeta]:
    """The policy's tensors as a bucket names them."""
    return [pb.TensorMeta(name=name, dtype="float32", shape=[SIZES[name] // 4]) for name in names]


@dataclass(slots=True, kw_only=True)
class Broadcast:
    """One publish. `rank0` is the learner's side of its group."""

    learner: Learner
    rank0: Rank0
    name: str = ""
    id: str = ""
    world_size: int = 0

    async def begin(
        self, version: WeightVersion, *, lease: float = LEASE_S, port: int | None = None
    ) -> None:
        request = pb.BeginPublishRequest(
            version=wire.version_to_proto(version),
            master_address="127.0.0.1",
            master_port=self.rank0.port if port is None else port,
            backend="gloo",
            lease=wire.duration(lease),
            learner=self.name,
        )
        answer = await call(self.learner.policy.BeginPublish, request, timeout=30)
        self.id, self.world_size = answer.publish_id, answer.world_size

    async def ask(self, index: int, tensors: Sequence[pb.TensorMeta]) -> None:
        """The RPC alone: nothing is broadcast."""
        request = pb.PublishBucketRequest(publish_id=self.id, index=index, tensors=tensors)
        await call(self.learner.policy.PublishBucket, request, timeout=30)

    async def bucket(self, index: int, *names: str) -> None:
        """Asks, and broadcasts once the group stands."""
        asked = asyncio.create_task(self.ask(index, metas(names)))
        await self.rank0.joined()
        await self.rank0.broadcast([SIZES[name] for name in names])
        await asked

    async def commit(self) -> pb.CommitPublishResponse:
        request = pb.CommitPublishRequest(publish_id=self.id)
        return await call(self.learner.policy.CommitPublish, request, timeout=30)

    async def abort(self) -> None:
        request = pb.AbortPublishRequest(publish_id=self.id)
        await call(self.learner.policy.AbortPublish, request, timeout=30)

    async def whole(self, version: WeightVersion) -> pb.CommitPublishResponse:
        """A publish from its beginning to its end, in two buckets."""
        await self.begin(version)
        await self.bucket(0, "a", "b")
        await self.bucket(1, "c")
        return await self.commit()
