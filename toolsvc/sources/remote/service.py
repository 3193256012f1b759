"""The connection to another tool service, which all its tools here share.

Invariants
- Its sessions are leased to an owner that lives as long as this process. A session that cannot be
  closed ends with its lease.
- If a renewal reports a session as lost, it is lost here too.
"""

from __future__ import annotations

import asyncio
import contextlib
import uuid

import structlog

from toolsvc.errors import StartError
from toolsvc.sources.remote.link import OPEN_SECONDS, ServiceLink
from toolsvc.sources.remote.session import RemoteSession
from toolsvc.types import SessionInfo
from toolwright import wire
from toolwright.rpc.channel import call
from toolwright.rpc.errors import ServiceError, TransportError
from toolwright.tool.v1 import tool_pb2 as pb

LEASE_SECONDS = 120.0
_ANSWER_SECONDS = 10.0

log = structlog.get_logger(__name__)


class RemoteService:
    """Made on the event loop that it will be used on."""

    def __init__(self, address: str, token: str, authority: bytes | None) -> None:
        """`authority`: see `toolwright.rpc.channel.open_channel`."""
        self.link = ServiceLink(address, token, authority)
        self.owner = f"toolsvc/{uuid.uuid4().hex}"
        self._sessions: dict[str, RemoteSession] = {}
        self._keeping: asyncio.Task[None] | None = None

    async def describe(self) -> list[pb.ToolDescriptor]:
        """Raises StartError if it does not answer."""
        try:
            answer = await call(
                self.link.stub(self.link.address).ListTools,
                pb.ListToolsRequest(),
                timeout=_ANSWER_SECONDS,
            )
        except (ServiceError, TransportError) as error:
            raise StartError(
                f"no tool service answers at {self.link.address} ({error}); start it first"
            ) from error
        return list(answer.tools)

    def start(self) -> None:
        """Renews the leases until `stop`. Idempotent."""
        if self._keeping is None:
            self._keeping = asyncio.create_task(self._keep_leases())

    async def stop(self) -> None:
        """Stops the renewals. Idempotent."""
        if self._keeping is not None:
            self._keeping.cancel()
            await asyncio.gather(self._keeping, return_exceptions=True)
            self._keeping = None
        await self.link.close()

    async def join(self, info: SessionInfo, tools: tuple[str, ...]) -> RemoteSession:
        """The other service's session for a session here, opened by the first tool that needs it.
        Raises Refused if it cannot be opened. Every `join` needs a `leave`."""
        session = self._sessions.get(info.session_id)
        if session is None:
            session = await self._open(info, tools)
            self._sessions[info.session_id] = session
        session.users += 1
        return session

    async def leave(self, session: RemoteSession) -> None:
        """Closes the session when its last tool leaves."""
        session.users -= 1
        if session.users:
            return
        self._sessions = {name: one for name, one in self._sessions.items() if one is not session}
        with contextlib.suppress(ServiceError, TransportError):
            await call(
                self.link.stub(session.endpoint).CloseSession,
                pb.CloseSessionRequest(session_id=session.id),
                timeout=_ANSWER_SECONDS,
            )

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
            opened = await self.link.ask(
                lambda: self.link.stub(self.link.address).OpenSession,
                request,
                timeout=OPEN_SECONDS + _ANSWER_SECONDS,
            )
        except (ServiceError, TransportError) as error:
            raise self.link.refusal(error) from error
        return RemoteSession(self.link, opened)

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
                        self.link.stub(endpoint).RenewLeases, request, timeout=_ANSWER_SECONDS
                    )
                except (ServiceError, TransportError) as error:
                    log.warning("renewal failed", endpoint=endpoint, error=str(error))
                    continue
                for session in sessions:
                    if session.id in answer.lost:
                        session.lost = f"{self.link.address} lost it"
