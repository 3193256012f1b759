"""A worker's view of the others: who lives, and requests to them.

Siblings speak the ToolService contract over Unix sockets in the abstract namespace, so neither
certificates nor the advertised host matter between them. What one asks another carries the epoch of
its view, and the token of the client for whom it asks; the other answers once its own view is as
new.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from enum import StrEnum
from typing import Any

import grpc.aio

from toolsvc.workers.placement import Member, View
from toolwright.common.v1 import reasons_pb2
from toolwright.rpc.channel import open_channel
from toolwright.rpc.errors import ServiceError, TransportError, from_rpc_error
from toolwright.tool.v1 import tool_pb2 as pb
from toolwright.tool.v1 import tool_pb2_grpc

LONGEST_SECONDS = 600.0
"""Deadline of a request for a client who gave none."""
VIEW_SECONDS = 10.0
"""For the supervisor's word to come; it is a line in a pipe."""
_RETRY_SECONDS = 0.2
_CLOSE_SECONDS = 5.0
"""For requests to a sibling that is gone to come to their own end."""

_HOP, _EPOCH = "toolwright-hop", "toolwright-epoch"


class Hop(StrEnum):
    """What one worker wants of another."""

    NONE = ""
    """Nothing: a client asks."""
    PLACE = "place"
    """Open the session there, its target."""
    HERE = "here"
    """Do it with what is there, and ask nobody else."""


def hop_of(context: Any) -> tuple[Hop, int]:
    """From the metadata of a request: what is wanted, and the epoch of the view behind it.
    ServiceError where they say nothing that a worker says."""
    given = {key: value for key, value in context.invocation_metadata() if key in (_HOP, _EPOCH)}
    try:
        return Hop(given.get(_HOP, "")), int(given.get(_EPOCH, 1))
    except ValueError as error:
        raise ServiceError(
            reasons_pb2.ERROR_REASON_INVALID_REQUEST,
            f"metadata {_HOP} or {_EPOCH}: {error}",
            subject="metadata",
            mend="leave them out: they are what workers say to each other",
        ) from error


class Siblings:
    """Not thread-safe. `close` closes the channels."""

    def __init__(self, slot: int) -> None:
        self.slot = slot
        self._view = View(epoch=0, members=())
        self._newer = asyncio.Event()
        self._links: dict[str, _Link] = {}
        self._closing: set[asyncio.Task[None]] = set()

    @property
    def view(self) -> View:
        return self._view

    @property
    def me(self) -> Member:
        return next(member for member in self._view.members if member.slot == self.slot)

    @property
    def others(self) -> tuple[Member, ...]:
        return self._view.siblings(self.slot)

    def update(self, view: View) -> None:
        """The supervisor's word. Channels to those who are gone are closed."""
        self._view = view
        self._newer.set()
        self._newer = asyncio.Event()
        links = {member.link for member in view.members}
        for link in self._links.keys() - links:
            closing = asyncio.create_task(self._links.pop(link).channel.close(_CLOSE_SECONDS))
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)

    async def at_least(self, epoch: int) -> View:
        """The view, once it is as new as `epoch`. ServiceError if that is not soon."""
        try:
            async with asyncio.timeout(VIEW_SECONDS):
                while self._view.epoch < epoch:
                    await self._newer.wait()
        except TimeoutError:
            raise unreachable(f"this worker was told of no view {epoch}") from None
        return self._view

    async def ask(
        self, member: Member, method: str, request: Any, context: Any, hop: Hop, epoch: int
    ) -> Any:
        """One RPC of ToolService to a sibling, within the time of the client's. ServiceError:
        what it says, or BACKEND_DOWN where it does not answer."""
        method_there = getattr(self._stub(member), method)
        try:
            return await method_there(request, **_terms(context, hop, epoch))
        except grpc.aio.AioRpcError as error:
            raise _said(member, error) from error

    async def blob(self, member: Member, sha256: str, context: Any) -> AsyncIterator[bytes]:
        """Pieces of a blob that a sibling holds. ServiceError as of `ask`."""
        request = pb.GetBlobRequest(sha256=sha256)
        terms = _terms(context, Hop.HERE, self._view.epoch)
        try:
            async for piece in self._stub(member).GetBlob(request, **terms):
                yield piece.data
        except grpc.aio.AioRpcError as error:
            raise _said(member, error) from error

    def _stub(self, member: Member) -> Any:
        link = self._links.get(member.link)
        if link is None:
            link = self._links[member.link] = _Link(member.link)
        return link.stub

    async def close(self) -> None:
        for link in self._links.values():
            await link.channel.close()
        await asyncio.gather(*self._closing)


class _Link:
    def __init__(self, address: str) -> None:
        self.channel = open_channel(address)
        self.stub: Any = tool_pb2_grpc.ToolServiceStub(self.channel)


def _terms(context: Any, hop: Hop, epoch: int) -> dict[str, Any]:
    """How a sibling is asked: within the time of the client's request, and with its token."""
    given = [one for one in context.invocation_metadata() or () if one[0] == "authorization"]
    return {
        "metadata": (*given, (_HOP, hop.value), (_EPOCH, str(epoch))),
        "timeout": min(context.time_remaining() or LONGEST_SECONDS, LONGEST_SECONDS),
    }


def _said(member: Member, rpc_error: grpc.aio.AioRpcError) -> ServiceError:
    error = from_rpc_error(rpc_error)
    if isinstance(error, TransportError):
        return unreachable(f"worker {member.slot} does not answer: {error}")
    return error


def unreachable(message: str) -> ServiceError:
    """For a request that may be sent again once the workers are in order."""
    return ServiceError(reasons_pb2.ERROR_REASON_BACKEND_DOWN, message, retry_after=_RETRY_SECONDS)
