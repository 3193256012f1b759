"""One trajectory's sessions, one on each service, and all their tools.

Invariants
- A name stands for one tool: that of the first service, in the recipe's order, that has it.
- A session that a renewal reports as lost ends its attempt at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Literal

from engine.core.time_limit import TimeLimit
from engine.core.tools.calls import PendingCall, request_of
from engine.core.tools.replies import Reply, refused
from engine.core.tools.sessions.session import ServiceSession
from engine.errors import SessionLost
from engine.types import Call, SessionRef, ToolSpec, tools_of
from toolwright.text.truncation import Keep
from toolwright.tool.v1 import tool_pb2 as pb
from toolwright.types import ToolErrorKind


class ToolSessions:
    """The sessions of one trajectory, open until `close`."""

    def __init__(
        self,
        sessions: Iterable[ServiceSession],
        on_close: Callable[[ToolSessions], None],
        clock: TimeLimit | None = None,
    ) -> None:
        """sessions: in the order of the recipe's services. clock: the trajectory's clock, which
        stands still while a service is unreachable or full."""
        self.sessions = tuple(sessions)
        self.clock = clock
        self.pending: list[PendingCall] = []
        """Calls that may still be in flight."""
        self._on_close = on_close
        self._closed = False
        self._timeout: asyncio.Timeout | None = None
        self._lost = ""
        for session in self.sessions:
            session.on_lost = self.mark_lost
            if session.is_lost:
                self.mark_lost(session)

    @property
    def refs(self) -> tuple[SessionRef, ...]:
        """References by which a later life of the engine finds the sessions."""
        return tuple(session.ref for session in self.sessions)

    @property
    def stateless(self) -> bool:
        """Whether no call changes what later calls see: then fresh sessions would do as well."""
        return all(session.stateless for session in self.sessions)

    @property
    def tools(self) -> tuple[ToolSpec, ...]:
        """All tools that the sessions have now; a call may add some."""
        return tools_of(self.refs)

    def session_of(self, tool: str) -> ServiceSession:
        """The session that has the tool, else the first one. Raises SessionLost if there is no
        session."""
        found = self._holder(tool) or next(iter(self.sessions), None)
        if found is None:
            raise SessionLost(f"no session has a tool {tool!r}")
        return found

    def keep_of(self, tool: str) -> Keep | Literal[""]:
        """`observation_keep` of the tool's service; "" for an unknown tool or no rule."""
        found = self._holder(tool)
        return found.table.observation_keep if found else ""

    def dispatch(
        self, call: Call, *, call_id: str, turn: int, turns_left: int
    ) -> PendingCall | Reply:
        """Sends the call now; await its `result`.

        A call that no service could take is the policy's mistake. The policy gets an answer that
        says so, at once.
        """
        session = self._session_for(call)
        if session is None:
            names = ", ".join(tool.name for tool in self.tools) or "none"
            reason = f"there is no tool {call.tool!r}, only {names}"
            return Reply(outcome=refused(reason, ToolErrorKind.UNKNOWN_TOOL))
        try:
            message = request_of(
                call,
                session.table,
                session_id=session.session_id,
                call_id=call_id,
                turn=turn,
                turns_left=turns_left,
            )
        except (TypeError, ValueError, OverflowError) as error:
            return Reply(outcome=refused(f"the arguments cannot be sent: {error}"))
        return self._send(session, message)

    def resend(self, call: Call, *, call_id: str, turn: int, turns_left: int) -> PendingCall:
        """Sends a call of an earlier life again, as the same request under the same id.

        `turns_left` must be what it was then, because services compare whole requests. Raises
        SessionLost if the trajectory has no session on `call.service`.
        """
        session = next((one for one in self.sessions if one.name == call.service), None)
        if session is None:
            raise SessionLost(f"call {call_id} went to tools.{call.service}, which is gone")
        message = request_of(
            call,
            session.table,
            session_id=session.session_id,
            call_id=call_id,
            turn=turn,
            turns_left=turns_left,
        )
        return self._send(session, message)

    @asynccontextmanager
    async def until_lost(self) -> AsyncIterator[None]:
        """Context whose block ends with SessionLost as soon as a session is known to be lost."""
        timeout = asyncio.timeout(0.0 if self._lost else None)
        try:
            async with timeout:
                self._timeout = timeout
                yield
        except TimeoutError:
            if not timeout.expired():
                raise
            raise SessionLost(self._lost) from None
        finally:
            self._timeout = None

    def mark_lost(self, session: ServiceSession) -> None:
        """Records that the service of `session` no longer holds it."""
        if self._lost:
            return
        self._lost = (
            f"tools.{session.name}: session {session.session_id} is lost, says the renewal of its "
            "lease"
        )
        if self._timeout is not None:
            self._timeout.reschedule(asyncio.get_running_loop().time())

    async def check_reach(self) -> None:
        """Raises ToolServiceFailed if a service that owes the result of a call does not answer."""
        for session in self.sessions:
            if any(one.session is session and not one.settled for one in self.pending):
                await session.check_reach()

    def close(self) -> None:
        """Closes the sessions in the background. Calls in flight are stopped before."""
        if not self._closed:
            self._closed = True
            self._on_close(self)

    def _session_for(self, call: Call) -> ServiceSession | None:
        if call.tool:
            return self._holder(call.tool)
        named = (session for session in self.sessions if session.name == call.service)
        return next(named, self.sessions[0] if self.sessions else None)

    def _holder(self, tool: str) -> ServiceSession | None:
        holders = (s for s in self.sessions if any(one.name == tool for one in s.tools))
        return next(holders, None)

    def _send(self, session: ServiceSession, message: pb.CallToolRequest) -> PendingCall:
        pending = PendingCall(session, message, self.clock)
        self.pending = [one for one in self.pending if not one.settled]
        self.pending.append(pending)
        return pending
