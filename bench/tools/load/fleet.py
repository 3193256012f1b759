"""Sessions of one server, and the calls in them.

Owns the client's side of the wire: channels, sessions, requests, stamps. The same code calls
service and floor, so only the server differs.

Invariants
- Each endpoint has one channel. On loopback two channels cost 10 % more CPU time a call and four
  cost 30 % more, for the same latency.
- A session has at most one call in flight, so all its calls share one request message.
- Answers are checked after the clock has stopped (`Shot.fault`).
- Leaving the context closes every open session.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from time import perf_counter
from typing import Any, Self
from uuid import uuid4

import grpc
import grpc.aio
from google.protobuf.duration_pb2 import Duration

from bench.errors import BenchError
from bench.tools.load.servers import Server
from bench.tools.load.workloads import Action, ToolWorkload
from toolwright.rpc.channel import open_channel
from toolwright.rpc.errors import from_rpc_error
from toolwright.tool.v1 import tool_pb2 as pb
from toolwright.tool.v1 import tool_pb2_grpc

LEASE_S = 3600
QUEUE_LIMIT_S = 120
RUN_LIMIT_S = 60
WAIT_S = 30
DEADLINE_S = WAIT_S + 30.0
OPENING_AT_ONCE = 32
"""First calls in flight while sessions are warmed; as many as sandboxes are held ready."""


@dataclass(slots=True, kw_only=True)
class Shot:
    """One call. Times are seconds of perf_counter."""

    action: Action
    intended: float
    """Time at which the call should have been sent."""
    sent: float
    answered: float
    result: pb.CallResult | None = None
    error: grpc.aio.AioRpcError | None = None

    @property
    def seconds(self) -> float:
        """Seconds from the intended start, so that a slow client hides nothing."""
        return self.answered - self.intended

    def fault(self) -> str | None:
        """The reason of a missing or wrong answer; None for the right one."""
        if self.error is not None:
            return str(from_rpc_error(self.error))
        assert self.result is not None
        if self.result.HasField("error"):
            return f"tool error: {self.result.error.message}"
        said = "".join(part.text for part in self.result.observation)
        if said.strip() != self.action.says:
            return f"{self.action.text!r} was answered with {said!r}"
        return None


@dataclass(slots=True, kw_only=True)
class _Session:
    name: str
    stub: Any
    request: pb.CallToolRequest
    number: int = 0
    """Number of the next call."""


class Fleet:
    """Sessions of one workload, without any at first. An async context manager."""

    def __init__(
        self,
        server: Server,
        workload: ToolWorkload,
        *,
        checked: bool = True,
        progress: Callable[[int], None] | None = None,
    ) -> None:
        """checked: whether a wrong answer to the warm-up is an error; the floor's answers are
        empty. progress: receives the number of warm sessions."""
        self.server = server
        self.workload = workload
        self._checked = checked
        self._progress = progress
        self._opened = 0
        self._owner = f"bench-{uuid4().hex[:12]}"
        self._stubs: dict[str, Any] = {}
        self._sessions: list[_Session] = []
        self._closing = AsyncExitStack()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_error: object) -> None:
        try:
            permits = asyncio.Semaphore(OPENING_AT_ONCE)
            await asyncio.gather(*(self._end(session, permits) for session in self._sessions))
        finally:
            await self._closing.aclose()

    def __len__(self) -> int:
        return len(self._sessions)

    async def add(self, count: int) -> None:
        """Opens and warms `count` more sessions. Raises BenchError if the server refuses one."""
        permits = asyncio.Semaphore(OPENING_AT_ONCE)

        async def one() -> None:
            async with permits:
                shot = await self.join(perf_counter())
                fault = shot.fault() if self._checked or shot.error else None
                if fault is not None:
                    raise BenchError(f"{self.server.address} failed the warm-up: {fault}")
            if self._progress is not None:
                self._progress(len(self))

        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(count):
                    group.create_task(one())
        except ExceptionGroup as several:
            raise several.exceptions[0] from None

    async def join(self, intended: float) -> Shot:
        """Opens a session and makes its first call."""
        name = f"{self._owner}-{self._opened}"
        self._opened += 1
        try:
            opened = await self._stub(self.server.address).OpenSession(
                pb.OpenSessionRequest(
                    session_id=name,
                    owner=self._owner,
                    lease=Duration(seconds=LEASE_S),
                    tools=[self.workload.tool],
                    queue_limit=Duration(seconds=QUEUE_LIMIT_S),
                ),
                timeout=QUEUE_LIMIT_S + DEADLINE_S,
            )
        except grpc.aio.AioRpcError as error:
            raise BenchError(
                f"{self.server.address} opened no session: {from_rpc_error(error)}"
            ) from error
        stub = self._stub(opened.endpoint or self.server.address)
        request = pb.CallToolRequest(
            session_id=name,
            tool=self.workload.tool,
            queue_limit=Duration(seconds=QUEUE_LIMIT_S),
            run_limit=Duration(seconds=RUN_LIMIT_S),
            wait=Duration(seconds=WAIT_S),
        )
        self._sessions.append(_Session(name=name, stub=stub, request=request))
        return await self.warm(len(self._sessions) - 1, intended)

    async def warm(self, index: int, intended: float) -> Shot:
        """Makes the workload's first call in session `index` and resets the count of its calls."""
        session = self._sessions[index]
        shot = await self._call(session, self.workload.warm_up, intended)
        session.number = 0
        return shot

    async def call(self, index: int, intended: float) -> Shot:
        """Makes the next call of session `index`. Its last call must have an answer."""
        session = self._sessions[index]
        action = self.workload.action(index, session.number)
        session.number += 1
        return await self._call(session, action, intended)

    async def _call(self, session: _Session, action: Action, intended: float) -> Shot:
        request = session.request
        request.action = action.text
        request.turn += 1
        request.call_id = f"{session.name}/0/{request.turn}/0"
        shot = Shot(action=action, intended=intended, sent=perf_counter(), answered=0.0)
        try:
            answer = await session.stub.CallTool(request, timeout=DEADLINE_S)
            while answer.HasField("running"):
                answer = await session.stub.CallTool(request, timeout=DEADLINE_S)
            shot.result = answer.result
        except grpc.aio.AioRpcError as error:
            shot.error = error
        shot.answered = perf_counter()
        return shot

    def _stub(self, address: str) -> Any:
        if address not in self._stubs:
            channel = open_channel(address, self.server.token)
            self._closing.push_async_callback(channel.close)
            self._stubs[address] = tool_pb2_grpc.ToolServiceStub(channel)
        return self._stubs[address]

    async def _end(self, session: _Session, permits: asyncio.Semaphore) -> None:
        # Its lease, or the end of the service, ends a session that cannot be closed.
        async with permits:
            with suppress(grpc.aio.AioRpcError):
                await session.stub.CloseSession(
                    pb.CloseSessionRequest(session_id=session.name), timeout=DEADLINE_S
                )
