"""Another tool service, as the tools that stand for it share it.

Invariants
- Its sessions are leased to an owner of this process's life; what a close cannot reach, the end of
  the lease reaps.
- A session of which a renewal says that it is lost is lost here too.
"""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import Callable
from typing import Any, cast

import grpc.aio
import structlog

from toolsvc.errors import Refused, StartError, backend_down
from toolsvc.host.blobs import SESSION_BYTES
from toolsvc.sources.remote.session import RemoteSession
from toolsvc.sources.remote.wire import refusal_from
from toolsvc.types import SessionInfo
from toolwright import wire
from toolwright.rpc.channel import backoff, call, may_retry, open_channel
from toolwright.rpc.errors import ServiceError, TransportError
from toolwright.tool.v1 import tool_pb2 as pb
from toolwright.tool.v1 import tool_pb2_grpc
from toolwright.types import BlobRef

LEASE_SECONDS = 120.0
OPEN_SECONDS = 60.0
_ANSWER_SECONDS = 10.0
_TRIES = 4

log = structlog.get_logger(__name__)


class RemoteService:
    """Made on the event loop that it will be used on."""

    def __init__(self, address: str, token: str, authority: bytes | None) -> None:
        """`authority`: see `toolwright.rpc.channel.open_channel`."""
        self.address = address
        self.owner = f"toolsvc/{uuid.uuid4().hex}"
        self._how = (token, authority)
        self._channels: dict[str, grpc.aio.Channel] = {}
        self._sessions: dict[str, RemoteSession] = {}
        self._keeping: asyncio.Task[None] | None = None

    async def describe(self) -> list[pb.ToolDescriptor]:
        """StartError if it does not answer."""
        try:
            answer = await call(
                self.stub(self.address).ListTools, pb.ListToolsRequest(), timeout=_ANSWER_SECONDS
            )
        except (ServiceError, TransportError) as error:
            raise StartError(
                f"no tool service answers at {self.address} ({error}); start it first"
            ) from error
        return list(answer.tools)

    def start(self) -> None:
        """Keeps the leases until `stop`; a second time it does nothing."""
        if self._keeping is None:
            self._keeping = asyncio.create_task(self._keep_leases())

    async def stop(self) -> None:
        """A second time it does nothing."""
        if self._keeping is not None:
            self._keeping.cancel()
            await asyncio.gather(self._keeping, return_exceptions=True)
            self._keeping = None
        while self._channels:
            await self._channels.popitem()[1].close()

    async def join(self, info: SessionInfo, tools: tuple[str, ...]) -> RemoteSession:
        """The session there that stands behind ours, opened by the first tool that needs it.
        Refused if it cannot be had. Every `join` has its `leave`."""
        session = self._sessions.get(info.session_id)
        if session is None:
            session = await self._open(info, tools)
            self._sessions[info.session_id] = session
        session.users += 1
        return session

    async def leave(self, session: RemoteSession) -> None:
        """Closes it with its last tool."""
        session.users -= 1
        if session.users:
            return
        self._sessions = {name: one for name, one in self._sessions.items() if one is not session}
        with contextlib.suppress(ServiceError, TransportError):
            await call(
                self.stub(session.endpoint).CloseSession,
                pb.CloseSessionRequest(session_id=session.id),
                timeout=_ANSWER_SECONDS,
            )

    def stub(self, address: str) -> tool_pb2_grpc.ToolServiceAsyncStub:
        if address not in self._channels:
            self._channels[address] = open_channel(address, *self._how)
        return cast(
            "tool_pb2_grpc.ToolServiceAsyncStub",
            tool_pb2_grpc.ToolServiceStub(self._channels[address]),
        )

    async def ask(
        self, method: Callable[[], Callable[..., Any]], request: Any, *, timeout: float
    ) -> Any:
        """Sent again where nothing ran or the answer was lost; every request here may be. Raises
        the last ServiceError or TransportError. `method` is looked up anew for every try."""
        for attempt in range(_TRIES):
            try:
                return await call(method(), request, timeout=timeout)
            except (ServiceError, TransportError) as error:
                if attempt == _TRIES - 1 or not may_retry(error):
                    raise
                await asyncio.sleep(backoff(attempt, error))
        raise AssertionError("unreachable")

    async def blob(self, endpoint: str, reference: BlobRef) -> bytes:
        """Refused if it cannot be had."""
        if reference.size > SESSION_BYTES:
            raise backend_down(f"{self.address} has media of {reference.size} bytes")
        data = bytearray()
        request = pb.GetBlobRequest(sha256=reference.sha256)
        try:
            async for piece in self.stub(endpoint).GetBlob(request, timeout=OPEN_SECONDS):
                data += piece.data
                if len(data) > reference.size:
                    break
        except grpc.aio.AioRpcError as error:
            raise backend_down(
                f"{self.address} lost media {reference.sha256}: {error.details()}"
            ) from error
        if len(data) != reference.size:
            raise backend_down(f"{self.address} sent another size of media than it named")
        return bytes(data)

    async def _open(self, info: SessionInfo, tools: tuple[str, ...]) -> RemoteSession:
        request = pb.OpenSessionRequest(
            session_id=f"{self.owner[8:16]}/{info.session_id}",
            owner=self.owner,
            lease=wire.duration(LEASE_SECONDS),
            tools=tools,
            metadata=wire.struct(info.metadata),
            metadata_json=wire.exact_json(info.metadata),
            queue_limit=wire.duration(OPEN_SECONDS),
        )
        try:
            opened = await self.ask(
                lambda: self.stub(self.address).OpenSession,
                request,
                timeout=OPEN_SECONDS + _ANSWER_SECONDS,
            )
        except (ServiceError, TransportError) as error:
            raise self.refusal(error) from error
        return RemoteSession(self, opened)

    def refusal(self, error: ServiceError | TransportError) -> Refused:
        return refusal_from(error, self.address)

    async def _keep_leases(self) -> None:
        while True:
            await asyncio.sleep(LEASE_SECONDS / 3)
            believed: dict[str, list[RemoteSession]] = {}
            for session in self._sessions.values():
                believed.setdefault(session.endpoint, []).append(session)
            for endpoint, sessions in believed.items():
                request = pb.RenewLeasesRequest(
                    owner=self.owner,
                    lease=wire.duration(LEASE_SECONDS),
                    session_ids=[session.id for session in sessions],
                )
                try:
                    answer = await call(
                        self.stub(endpoint).RenewLeases, request, timeout=_ANSWER_SECONDS
                    )
                except (ServiceError, TransportError) as error:
                    log.warning("renewal failed", endpoint=endpoint, error=str(error))
                    continue
                for session in sessions:
                    if session.id in answer.lost:
                        session.lost = f"{self.address} lost it"
