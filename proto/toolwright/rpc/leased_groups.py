"""The stream of LeaseGroups on the reader's side: bytes in, checked groups out."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress

import grpc.aio
from google.protobuf.message import DecodeError
from google.protobuf.wrappers_pb2 import BytesValue

from toolwright import wire
from toolwright.common.v1 import trajectory_pb2
from toolwright.rollout.v1 import rollout_pb2
from toolwright.types import Group


class BrokenGroup(Exception):
    """The members that arrived are not those that the engine announced."""


class GroupStream:
    """LeaseGroups on one channel. A trajectory is parsed once its group is whole."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._lease = channel.unary_stream(
            "/toolwright.rollout.v1.RolloutService/LeaseGroups",
            request_serializer=rollout_pb2.LeaseGroupsRequest.SerializeToString,
            response_deserializer=_leased,
        )

    async def lease(
        self,
        request: rollout_pb2.LeaseGroupsRequest,
        *,
        timeout: float,
        retry: Callable[[Callable[[], Awaitable[None]]], Awaitable[None]],
    ) -> list[Group]:
        """All groups of one lease. timeout: as for `groups`. retry: repeats an attempt; each one
        leases what is still missing."""
        got: list[Group] = []
        after, count = request.after_sequence, request.max_groups

        async def attempt() -> None:
            request.after_sequence = got[-1].sequence_number if got else after
            request.max_groups = count - len(got)
            async for group in self.groups(request, timeout=timeout):
                got.append(group)  # noqa: PERF401 (those before an error count)

        await retry(attempt)
        return got

    async def groups(
        self, request: rollout_pb2.LeaseGroupsRequest, *, timeout: float
    ) -> AsyncIterator[Group]:
        """Each group of one lease. timeout: deadline of the whole stream, in seconds. Raises
        BrokenGroup, and AioRpcError if the stream breaks."""
        members: list[bytes] = []
        async for item in self._lease(request, timeout=timeout):
            if isinstance(item, bytes):
                members.append(item)
            else:
                yield closed_group(item, members)
                members = []


def _leased(data: bytes) -> bytes | trajectory_pb2.GroupInfo:
    """A LeaseGroupsResponse: a trajectory's bytes as they came, or the end of a group.

    With a trajectory it has the wire form of a BytesValue.
    """
    member = BytesValue.FromString(data).value
    return member or rollout_pb2.LeaseGroupsResponse.FromString(data).group


def closed_group(info: trajectory_pb2.GroupInfo, members: list[bytes]) -> Group:
    """The group of these members. Raises BrokenGroup if they do not have its hash."""
    parse, found = trajectory_pb2.Trajectory.FromString, wire.content_hash(members)
    if found != info.content_hash:  # v1 leaves the order of a map's keys on the wire open
        with suppress(DecodeError):
            found = wire.content_hash(wire.serialize(parse(member)) for member in members)
    if info.members != len(members) or info.content_hash != found:
        raise BrokenGroup(
            f"group {info.id} (number {info.sequence_number}) arrived with {len(members)} members "
            f"and hash {found[:12]}, the engine announced {info.members} and "
            f"{info.content_hash[:12]}"
        )
    return Group(
        id=info.id,
        trajectories=tuple(wire.trajectory_from_proto(parse(member)) for member in members),
        sequence_number=info.sequence_number,
        content_hash=info.content_hash,
    )
