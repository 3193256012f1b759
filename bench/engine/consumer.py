"""A consumer of an engine: it leases trajectories as a learner does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from toolwright.common.v1.trajectory_pb2 import Trajectory
from toolwright.rollout.v1 import rollout_pb2, rollout_pb2_grpc
from toolwright.rpc.channel import open_channel

GROUPS_A_LEASE = 256
LOOK_S = 0.25
"""Interval between looks at the engine's status."""


async def leased(port: int, trajectories: int) -> AsyncIterator[Trajectory]:
    """Yields this number of trajectories of the engine on that port of loopback, as they end."""
    mark, left = 0, trajectories
    async with open_channel(f"127.0.0.1:{port}") as channel:
        stub = rollout_pb2_grpc.RolloutServiceStub(channel)
        question = rollout_pb2.GetStatusRequest()
        # The engine has a version when it has brought the samplers to their weights.
        while not (status := await stub.GetStatus(question, timeout=10.0)).HasField("version"):  # noqa: ASYNC110
            await asyncio.sleep(LOOK_S)
        while left:
            request = rollout_pb2.LeaseGroupsRequest(
                consumer=rollout_pb2.CONSUMER_TRAIN,
                after_sequence=mark,
                max_groups=min(GROUPS_A_LEASE, left),
                version=status.version,
            )
            async for item in stub.LeaseGroups(request):
                if item.HasField("group"):
                    mark = item.group.sequence_number
                else:
                    left -= 1
                    yield item.trajectory
