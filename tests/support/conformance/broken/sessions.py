"""Rule 4 and leases, broken."""

from __future__ import annotations

import asyncio
import time

from tests.support.conformance.broken.registry import broken
from tests.support.conformance.reference import Reference, ReferenceSession
from tests.support.conformance.reference.tools import State
from toolsvc.check.types import Rule
from toolwright.rpc.errors import ServiceError
from toolwright.tool.v1 import tool_pb2 as pb


@broken(
    Rule.SESSIONS,
    "opening-again-is-the-same-session",
)
class OpeningAgainBeginsAnew(Reference):
    """OpenSession repeated makes the session anew."""

    async def open(self, request: pb.OpenSessionRequest) -> pb.OpenSessionResponse:
        self.sessions.pop(request.session_id, None)
        return await super().open(request)


@broken(
    Rule.SESSIONS,
    "opening-again-is-the-same-session",
    "openings-at-once-are-one-session",
)
class OpeningAgainIsAnother(Reference):
    """OpenSession repeated is a second session."""

    async def open(self, request: pb.OpenSessionRequest) -> pb.OpenSessionResponse:
        while request.session_id in self.sessions:
            request.session_id += "'"
        return await super().open(request)


@broken(Rule.SESSIONS, "a-closed-id-stays-closed")
class ClosedSessionsReturn(Reference):
    """Brings a closed session back two seconds later."""

    def close(self, session_id: str) -> bool:
        session = self.sessions.get(session_id)
        closed = super().close(session_id)
        if closed and session is not None:
            asyncio.get_running_loop().call_later(2.0, self._bring_back, session_id, session)
        return closed

    def _bring_back(self, session_id: str, session: ReferenceSession) -> None:
        self.closed.discard(session_id)
        self.sessions.setdefault(session_id, session)


@broken(Rule.DEADLINE, "an-opening-survives-its-deadline")
class OpeningsCannotBeSentAgain(Reference):
    """Refuses to open what it has begun to open."""

    def __init__(self) -> None:
        super().__init__()
        self.begun: set[str] = set()

    async def open(self, request: pb.OpenSessionRequest) -> pb.OpenSessionResponse:
        if request.session_id in self.begun:
            raise self.gone(request.session_id)
        self.begun.add(request.session_id)
        await asyncio.sleep(0.05)
        return await super().open(request)


@broken(Rule.SESSIONS, "another-opening-is-refused")
class AnyOpeningWillDo(Reference):
    """Knows a session by its id, whatever else is in the request."""

    async def open(self, request: pb.OpenSessionRequest) -> pb.OpenSessionResponse:
        known = self.sessions.get(request.session_id)
        return await super().open(request if known is None else known.request)


@broken(Rule.SESSIONS, "a-session-for-an-unknown-tool-is-refused")
class IgnoresUnknownTools(Reference):
    """Opens a session without the tools that it does not have."""

    def session_tools(self, request: pb.OpenSessionRequest) -> list[pb.ToolDescriptor]:
        return [tool for tool in self.tools() if tool.name in request.tools or not request.tools]


@broken(Rule.SESSIONS, "state-lives-from-call-to-call")
class KeepsNoState(Reference):
    """A session begins anew with each turn."""

    def session(self, session_id: str) -> ReferenceSession:
        session = super().session(session_id)
        session.state = State()
        return session


@broken(Rule.SESSIONS, "sessions-see-nothing-of-each-other")
class OneStateForAll(Reference):
    """Sessions share their state."""

    def __init__(self) -> None:
        super().__init__()
        self.state = State()

    async def open(self, request: pb.OpenSessionRequest) -> pb.OpenSessionResponse:
        opened = await super().open(request)
        self.sessions[request.session_id].state = self.state
        return opened


@broken(Rule.SESSIONS, "sessions-do-not-wait-for-each-other")
class OneLineForAll(Reference):
    """Sessions wait for each other."""

    def __init__(self) -> None:
        super().__init__()
        self.line = asyncio.Lock()

    def turnstile(self, session: ReferenceSession, tool: pb.ToolDescriptor) -> asyncio.Lock:
        return self.line


@broken(Rule.SESSIONS, "calls-go-to-the-endpoint")
class NamesAnEmptyEndpoint(Reference):
    """Names an endpoint where nobody listens."""

    async def open(self, request: pb.OpenSessionRequest) -> pb.OpenSessionResponse:
        opened = await super().open(request)
        opened.endpoint = "127.0.0.1:9"
        return opened


@broken(Rule.SESSIONS, "closing-is-idempotent", "closing-the-unknown-is-fine")
class ClosingTwiceIsAnError(Reference):
    """Refuses to close what is closed."""

    def close(self, session_id: str) -> bool:
        self.session(session_id)
        return super().close(session_id)


@broken(
    Rule.SESSIONS,
    "closing-is-idempotent",
    "a-closed-session-runs-nothing",
    "closing-ends-calls",
    "a-closed-session-is-not-held",
)
class ClosesNothing(Reference):
    """Says that a session is closed, and keeps it."""

    def close(self, session_id: str) -> bool:
        return session_id in self.sessions


@broken(Rule.SESSIONS, "closing-ends-calls")
class CallsOutliveTheirSession(Reference):
    """Lets calls in flight end in their own time."""

    def close(self, session_id: str) -> bool:
        self.closed.add(session_id)
        return self.sessions.pop(session_id, None) is not None


@broken(Rule.SESSIONS, "closing-one-leaves-the-others")
class ClosesTheOwner(Reference):
    """Closes all sessions of the owner with one."""

    def close(self, session_id: str) -> bool:
        session = self.sessions.get(session_id)
        names = self.held(session.request.owner) if session is not None else []
        return any([super(ClosesTheOwner, self).close(name) for name in names])


@broken(
    Rule.SESSIONS,
    "an-unknown-session-is-refused",
    "cancelling-in-no-session-is-refused",
    "a-closed-session-runs-nothing",
)
class OpensByItself(Reference):
    """Opens a session that nobody opened when a call comes for it."""

    def session(self, session_id: str) -> ReferenceSession:
        try:
            return super().session(session_id)
        except ServiceError:
            request = pb.OpenSessionRequest(session_id=session_id)
            session = ReferenceSession(request, time.monotonic() + 60, self.tools())
            return self.sessions.setdefault(session_id, session)


@broken(Rule.LEASE, "what-is-not-renewed-ends", "a-lease-ends-calls")
class NeverReaps(Reference):
    """Keeps sessions whose lease is over."""

    async def reap(self) -> None:
        await asyncio.Event().wait()


@broken(Rule.LEASE, "what-is-renewed-stays", "a-longer-lease-counts-from-its-renewal")
class RenewsNothing(Reference):
    """Answers RenewLeases, and renews nothing."""

    def renew(self, request: pb.RenewLeasesRequest) -> pb.RenewLeasesResponse:
        held = self.held(request.owner)
        lost = [name for name in request.session_ids if name not in held]
        return pb.RenewLeasesResponse(held=held, lost=lost)


@broken(Rule.LEASE, "the-held-and-the-lost-are-told", "a-closed-session-is-not-held")
class LosesNothing(Reference):
    """Does not tell which sessions are lost."""

    def renew(self, request: pb.RenewLeasesRequest) -> pb.RenewLeasesResponse:
        return pb.RenewLeasesResponse(held=super().renew(request).held)


@broken(Rule.LEASE, "owners-hold-their-own")
class OneOwner(Reference):
    """Gives every owner all sessions."""

    def held(self, owner: str) -> list[str]:
        return list(self.sessions)
