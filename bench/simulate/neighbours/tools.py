"""The tool host, in-process: the real `toolsvc` host and its edge, with a tool that counts.

Invariants
- The tool answers anew at each run: an effect that happened twice shows in the answers.
- A host that dies takes its sessions with it; the next one knows none of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

from bench.history.events import AnyEvent, Effect, SessionClosed, SessionOpened, Taken
from bench.simulate.neighbours.channel import Network
from bench.simulate.schedule import Workload
from bench.simulate.virtual.loop import Owner, loop_here, owner_here
from bench.simulate.workload import STOP, TEXT_STOP, UNFIT, ids_of
from toolsvc.edge.call_stream import Asked
from toolsvc.edge.service import ToolServicer
from toolsvc.errors import Reason, Refused
from toolsvc.host.host import Host
from toolsvc.plugin.results import ToolFailed
from toolsvc.plugin.tool import Tool
from toolsvc.types import Call, RawFormat, SessionInfo
from toolwright.tool.v1 import tool_pb2 as pb
from toolwright.types import ids

LONGEST_CALL_S = 20.0
"""Longest call, in seconds. It is below the run limit, so the history's answer is delivered."""
FAILS = 0.05
"""Share of calls that fail as a tool's own error."""


@dataclass(slots=True)
class _State:
    session: str
    calls: list[str] = field(default_factory=list)


class Count(Tool):
    """Sleeps, then answers with its session's count of calls and a new random number."""

    name = "count"
    description = "Counts."
    format = RawFormat()
    run_limit = 30.0

    def __init__(self, workload: Workload, random: Random, see: Callable[[AnyEvent], None]) -> None:
        self.stateful = workload.stateful
        self.parallel_calls = workload.parallel
        self.stop_strings = (TEXT_STOP if workload.text_stops else STOP,)
        self._workload = workload
        self._random = random
        self._see = see
        self.open_sessions: dict[str, None] = {}
        self.asked_to_close: set[str] = set()

    async def open(self, session: SessionInfo) -> _State:
        await asyncio.sleep(self._random.uniform(0.0, self._workload.open_s))
        if UNFIT in session.metadata:
            raise Refused(Reason.INVALID_REQUEST, "the tool has nothing for this task")
        self.open_sessions[session.session_id] = None
        self._see(SessionOpened(at=loop_here().time(), session=session.session_id))
        return _State(session.session_id)

    async def fork(self, state: _State, session: SessionInfo) -> _State:
        forked: _State = await self.open(session)
        forked.calls = list(state.calls)
        return forked

    async def call(self, state: _State, call: Call) -> str:
        state.calls.append(call.call_id)
        fails = self._random.random() < FAILS
        text = f"{len(state.calls)}.{self._random.getrandbits(24):06x}"
        if fails:
            text = f"failed.{text}"
        self._see(
            Effect(
                at=loop_here().time(),
                session=state.session,
                call_id=call.call_id,
                action=call.action,
                answer=ids(ids_of(f"[{text}]")),
            )
        )
        seconds = self._random.expovariate(1 / self._workload.call_s)
        await asyncio.sleep(min(seconds, LONGEST_CALL_S))
        if fails:
            raise ToolFailed(text)
        return text

    async def close(self, state: _State) -> None:
        self.closed(state.session)

    def closed(self, session: str) -> None:
        owner = owner_here()
        if self.open_sessions.pop(session, 0) is None and (owner is None or owner.alive):
            by_engine = session in self.asked_to_close
            self._see(SessionClosed(at=loop_here().time(), session=session, by_engine=by_engine))


class _Edge(ToolServicer):
    """Notes which sessions the engine closes, and which fenced requests are taken."""

    def __init__(self, host: Host, tool: Count, see: Callable[[AnyEvent], None]) -> None:
        super().__init__(host, "simulated")
        self._tool = tool
        self._see = see

    def begin_call(self, asked: Asked, request: pb.CallToolRequest) -> None:
        session, call_id, fence = request.session_id, request.call_id, request.fence
        super().begin_call(asked, request)
        self._took(session, fence, call_id)

    async def GetSession(
        self, request: pb.GetSessionRequest, context: Any
    ) -> pb.GetSessionResponse:
        answer = await super().GetSession(request, context)
        self._took(request.session_id, request.fence)
        return answer

    def _took(self, session: str, fence: int, call_id: str = "") -> None:
        if fence:
            now = loop_here().time()
            self._see(Taken(at=now, session=session, fence=fence, call_id=call_id))

    async def CloseSession(
        self, request: pb.CloseSessionRequest, context: Any
    ) -> pb.CloseSessionResponse:
        self._tool.asked_to_close.add(request.session_id)
        return await super().CloseSession(request, context)


class ToolHost:
    """The host's lives, one after the other, behind one network."""

    def __init__(
        self,
        workload: Workload,
        network: Network,
        random: Random,
        see: Callable[[AnyEvent], None],
    ) -> None:
        self.network = network
        self._workload = workload
        self._random = random
        self._see = see
        self._lives = 0
        self._owner: Owner | None = None
        self._tool: Count | None = None
        self._host: Host | None = None

    @property
    def open_sessions(self) -> int:
        return len(self._tool.open_sessions) if self._tool is not None else 0

    async def start(self) -> None:
        """Serves from when it returns."""
        self._lives += 1
        self._owner = owner = Owner(loop_here(), f"host {self._lives}")
        self._tool = Count(self._workload, self._random, self._see)
        self._host = Host([self._tool], max_sessions=self._workload.max_sessions)
        await owner.ask(self._host.__aenter__())
        self.network.serve(owner, _Edge(self._host, self._tool, self._see))

    async def kill(self) -> None:
        """It is gone, with all sessions."""
        owner, tool = self._owner, self._tool
        if owner is None or tool is None:
            return
        self._owner = self._host = None
        owner.die()
        self.network.gone()
        for session in list(tool.open_sessions):
            del tool.open_sessions[session]
            self._see(SessionClosed(at=loop_here().time(), session=session))
        await owner.buried()

    def end_leases(self) -> None:
        """As if no renewal had come for a lease's time."""
        for session in self._host._sessions if self._host is not None else ():
            session.lease_until = 0.0

    async def stop(self) -> None:
        """At the end of the run."""
        if self._owner is not None and self._host is not None:
            await self._owner.ask(self._host.__aexit__(None, None, None))
            self._owner.die()
            await self._owner.buried()
