"""Sessions: opened once, leased to an owner, ended for good."""

from __future__ import annotations

import asyncio
import time

from tests.support.conformance.reference.blobs import Blobs
from tests.support.conformance.reference.requests import refusal
from tests.support.conformance.reference.tools import descriptors
from tests.support.conformance.reference.types import ReferenceSession
from toolwright.common.v1 import reasons_pb2 as reasons
from toolwright.rpc.errors import ServiceError
from toolwright.tool.v1 import tool_pb2 as pb

LEASE_SECONDS = 120.0
REAP_SECONDS = 0.1
_RETRY_SECONDS = 0.1


class Sessions(Blobs):
    def __init__(self) -> None:
        super().__init__()
        self.sessions: dict[str, ReferenceSession] = {}
        self.closed: set[str] = set()

    def tools(self) -> list[pb.ToolDescriptor]:
        return descriptors()

    async def open(self, request: pb.OpenSessionRequest) -> pb.OpenSessionResponse:
        self.require(request, "session_id")
        self.require(request, "owner")
        lease = self.seconds(request, "lease", LEASE_SECONDS)
        session = self.sessions.get(request.session_id)
        if session is None:
            if request.session_id in self.closed:
                raise self.gone(request.session_id)
            self.look_for_blobs(request)
            session = ReferenceSession(
                request, time.monotonic() + lease, self.session_tools(request)
            )
            self.sessions[request.session_id] = session
        elif session.request != request:
            raise refusal(
                reasons.ERROR_REASON_INVALID_REQUEST,
                "the session is open by another request",
                request.session_id,
            )
        return pb.OpenSessionResponse(session_id=request.session_id, tools=session.tools)

    async def fork(self, request: pb.ForkSessionRequest) -> pb.OpenSessionResponse:
        if request.open.session_id in self.sessions:
            return await self.open(request.open)
        parent = self.session(request.session_id)
        self.look_whether_it_forks(parent)
        self.look_whether_it_is_idle(parent)
        opened = await self.open(request.open)
        self.hand_on(parent, self.sessions[request.open.session_id])
        return opened

    def look_whether_it_forks(self, parent: ReferenceSession) -> None:
        for tool in parent.tools:
            if not tool.capabilities.fork:
                raise refusal(
                    reasons.ERROR_REASON_NOT_SERVED, f"{tool.name} does not fork", tool.name
                )

    def look_whether_it_is_idle(self, parent: ReferenceSession) -> None:
        if any(not call.answer.done() for call in parent.calls.values()):
            raise refusal(
                reasons.ERROR_REASON_SESSION_BUSY,
                "a call runs",
                parent.request.session_id,
                retry_after=_RETRY_SECONDS,
            )

    def hand_on(self, parent: ReferenceSession, child: ReferenceSession) -> None:
        """What a fork has of its parent."""
        child.state.counter = parent.state.counter
        child.began.update(parent.began)
        child.inherited.update(parent.began)

    def session_tools(self, request: pb.OpenSessionRequest) -> list[pb.ToolDescriptor]:
        tools = self.tools()
        for name in request.tools:
            if name not in {tool.name for tool in tools}:
                raise refusal(reasons.ERROR_REASON_UNKNOWN_TOOL, "no such tool", name)
        return [tool for tool in tools if not request.tools or tool.name in request.tools]

    def session(self, session_id: str) -> ReferenceSession:
        session = self.sessions.get(session_id)
        if session is None:
            raise self.gone(session_id)
        return session

    def gone(self, session_id: str) -> ServiceError:
        if session_id in self.closed:
            return refusal(reasons.ERROR_REASON_SESSION_CLOSED, "the session ended", session_id)
        return refusal(reasons.ERROR_REASON_SESSION_NOT_FOUND, "no such session", session_id)

    def renew(self, request: pb.RenewLeasesRequest) -> pb.RenewLeasesResponse:
        until = time.monotonic() + self.seconds(request, "lease", LEASE_SECONDS)
        held = self.held(request.owner)
        for name in held:
            self.sessions[name].lease_until = until
        lost = [name for name in request.session_ids if name not in held]
        return pb.RenewLeasesResponse(held=held, lost=lost)

    def held(self, owner: str) -> list[str]:
        """Names of an owner's sessions."""
        return [name for name, one in self.sessions.items() if one.request.owner == owner]

    def close(self, session_id: str) -> bool:
        session = self.sessions.pop(session_id, None)
        if session is None:
            return False
        self.closed.add(session_id)
        self.end_calls(session)
        return True

    def end_calls(self, session: ReferenceSession) -> None:
        """Of a session that was closed."""
        raise NotImplementedError

    async def reap(self) -> None:
        """Ends sessions whose lease is over, for ever."""
        while True:
            await asyncio.sleep(REAP_SECONDS)
            now = time.monotonic()
            for name in [name for name, one in self.sessions.items() if one.lease_until < now]:
                self.close(name)
