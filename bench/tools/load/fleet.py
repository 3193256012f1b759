"""Sessions of one service, opened and warmed, and the calls that are made in them.

Owns the client's side of the wire: channels, sessions, requests, stamps. The same code talks to
the service and to the bare floor, so that what differs between them is the server alone.

Invariants
- One channel an endpoint: on loopback two cost 10 % and four 30 % more CPU time a call, and no
  fewer milliseconds.
- A session has at most one call in flight, so its request is one message that is used again.
- What a call came to is looked at after the clock has stopped: `Shot.fault`.
- Leaving the context closes every session that was opened.
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
from bench.tools.load.workloads import Action, Workload
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
"""First calls under way while the sessions are warmed; the same as sandboxes held ready."""


@dataclass(slots=True, kw_only=True)
class Shot:
    """One call. Seconds of perf_counter; `intended` is when it should have been sent."""

    action: Action
    intended: float
    sent: float
    answered: float
    result: pb.CallResult | None = None
    error: grpc.aio.AioRpcError | None = None

    @property
    def seconds(self) -> float:
        """From the intended start, so that a client that falls behind hides nothing."""
        return self.answered - self.intended

    def fault(self) -> str | None:
        """Why the answer is none, or not the right one."""
        if self.error is not None:
            return str(from_rpc_error(self.error))
        assert self.result is not None
        if self.result.HasField("error"):
            return f"tool error: {self.result.error.message}"
        said = "".join(part.text for part in self.result.observation)
        if said.strip() != self.action.says:
            return f"{self.action.text!r} was answered with {said!r}"
        return None


class _Session:
    __slots__ = ("name", "number", "request", "stub")

    def __init__(self, name: str, stub: Any, tool: str) -> None:
        self.name = name
        self.stub = stub
        self.number = 0
        self.request = pb.CallToolRequest(
            session_id=name,
            tool=tool,
            queue_limit=Duration(seconds=QUEUE_LIMIT_S),
            run_limit=Duration(seconds=RUN_LIMIT_S),
            wait=Duration(seconds=WAIT_S),
        )


class Fleet:
    """Async context manager: the sessions of one workload; none at first."""

    def __init__(
        self,
        address: str,
        workload: Workload,
        *,
        token: str = "",
        checked: bool = True,
        progress: Callable[[int], None] | None = None,
    ) -> None:
        """`checked`: refuse to start where the warm-up is answered wrongly (the floor answers
        nothing). `progress`: told how many sessions are warm."""
        self.workload = workload
        self._address = address
        self._token = token
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
        await self._close()

    def __len__(self) -> int:
        return len(self._sessions)

    async def add(self, count: int) -> None:
        """Opens and warms `count` more sessions. BenchError when one cannot be had."""
        permits = asyncio.Semaphore(OPENING_AT_ONCE)

        async def one() -> None:
            async with permits:
                shot = await self.join(perf_counter())
                fault = shot.fault() if self._checked or shot.error else None
                if fault is not None:
                    raise BenchError(f"{self._address} failed the warm-up: {fault}")
            if self._progress is not None:
                self._progress(len(self))

        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(count):
                    group.create_task(one())
        except ExceptionGroup as several:
            raise several.exceptions[0] from None

    async def join(self, intended: float) -> Shot:
        """One more session, from its opening to the answer of its first call."""
        name = f"{self._owner}-{self._opened}"
        self._opened += 1
        try:
            opened = await self._stub(self._address).OpenSession(
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
                f"{self._address} opened no session: {from_rpc_error(error)}"
            ) from error
        stub = self._stub(opened.endpoint or self._address)
        self._sessions.append(_Session(name, stub, self.workload.tool))
        return await self.warm(len(self._sessions) - 1, intended)

    async def warm(self, index: int, intended: float) -> Shot:
        """The workload's first call, in session `index`; the count of its calls begins anew."""
        session = self._sessions[index]
        shot = await self._call(session, self.workload.warm_up, intended)
        session.number = 0
        return shot

    async def call(self, index: int, intended: float) -> Shot:
        """The next call of session `index`, whose last one has been answered."""
        session = self._sessions[index]
        action = self.workload.action(index, session.number)
        session.number += 1
        return await self._call(session, action, intended)

    async def _call(self, session: _Session, action: Action, intended: float) -> Shot:
        request = session.request
        request.action = action.text
        request.turn += 1
        request.call_id = f"{session.name}/0/{request.turn}/0"
        sent = perf_counter()
        try:
            answer = await session.stub.CallTool(request, timeout=DEADLINE_S)
            while answer.HasField("running"):
                answer = await session.stub.CallTool(request, timeout=DEADLINE_S)
        except grpc.aio.AioRpcError as error:
            return Shot(
                action=action, intended=intended, sent=sent, answered=perf_counter(), error=error
            )
        return Shot(
            action=action,
            intended=intended,
            sent=sent,
            answered=perf_counter(),
            result=answer.result,
        )

    def _stub(self, address: str) -> Any:
        if address not in self._stubs:
            channel = open_channel(address, self._token)
            self._closing.push_async_callback(channel.close)
            self._stubs[address] = tool_pb2_grpc.ToolServiceStub(channel)
        return self._stubs[address]

    async def _close(self) -> None:
        try:
            permits = asyncio.Semaphore(OPENING_AT_ONCE)
            await asyncio.gather(*(self._end(session, permits) for session in self._sessions))
        finally:
            await self._closing.aclose()

    async def _end(self, session: _Session, permits: asyncio.Semaphore) -> None:
        async with permits:
            # A session that cannot be closed is ended by its lease, or with the service.
            with suppress(grpc.aio.AioRpcError):
                await session.stub.CloseSession(
                    pb.CloseSessionRequest(session_id=session.name), timeout=DEADLINE_S
                )
