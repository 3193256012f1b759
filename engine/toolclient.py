"""Tool services as a trajectory sees them: open a session, call, close.

Invariants
- Every session that was opened is closed, also after failure and cancellation; what a close
  cannot reach, the lease's end reaps.
- A call is retried with the same call_id only where nothing ran or the answer was lost.
- What the policy may see is an OK answer; everything else raises AttemptFailed.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Mapping, Set
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import grpc.aio
import structlog
from google.protobuf.message import Error as MessageError

from engine.errors import AttemptFailed, SessionLost, StartupError, ToolServiceFailed
from engine.types import Call, CallOutcome, ToolSpec

if TYPE_CHECKING:
    from toolwright.tool.v1.tool_pb2_grpc import ToolServiceAsyncStub
from toolwright import wire
from toolwright.common.v1 import reasons_pb2 as reasons
from toolwright.recipe import Tool as ToolTable
from toolwright.rpc.channel import backoff, call, may_retry, open_channel
from toolwright.rpc.errors import ServiceError, TransportError, from_rpc_error
from toolwright.rpc.options import TOKEN_VARIABLE
from toolwright.tool.v1 import tool_pb2 as pb
from toolwright.tool.v1 import tool_pb2_grpc
from toolwright.types import Task, ToolErrorKind

GRACE = 5.0
"""Seconds that an RPC's deadline is above the limits inside it."""
LONGEST_WAIT = 30.0
"""Seconds after which a service answers `running` (the contract's bound)."""
OPEN_SECONDS = 60.0

UNKNOWN_TOOL = ToolErrorKind.UNKNOWN_TOOL

log = structlog.get_logger("tools")


@dataclass(frozen=True, slots=True, kw_only=True)
class CallPlace:
    """Where in the trajectory a call stands."""

    call_id: str
    turn: int
    turns_left: int


class ToolServices:
    """All services of a recipe, the leases of this engine's sessions, and their closing."""

    def __init__(self, tables: Mapping[str, ToolTable], owner: str) -> None:
        self._owner = owner
        self._services = {name: _Service(name, table) for name, table in tables.items()}
        self._closing: set[asyncio.Task[None]] = set()
        self._live: set[str] = set()

    async def open(self) -> dict[str, list[ToolSpec]]:
        """Connects, closes what an earlier life of this owner left, and lists the tools.

        StartupError names the service that does not answer or lacks a tool.
        """
        found = {}
        for name, service in self._services.items():
            found[name] = await service.describe()
            for session_id in await service.renew(self._owner):
                await service.close_session(session_id, service.stub)
        return found

    async def close(self) -> None:
        await asyncio.gather(*self._closing, return_exceptions=True)
        for service in self._services.values():
            await service.close()

    async def open_session(self, session_id: str, task: Task) -> Session:
        """A session on every service. AttemptFailed when one cannot open it.

        After failure and cancellation nothing of it stays open. The id on the wire is led by the
        owner's: several engines may share a service.
        """
        session_id = f"{self._owner[:8]}/{session_id}"
        self._live.add(session_id)
        session = Session(session_id, self)
        try:
            async with asyncio.TaskGroup() as group:
                opened = [
                    group.create_task(service.open_session(session_id, self._owner, task))
                    for service in self._services.values()
                ]
        except BaseExceptionGroup as failures:
            self.close_later(session)
            failed, others = failures.split(AttemptFailed)
            if failed is None or others is not None:
                raise
            raise failed.exceptions[0] from None
        except BaseException:
            self.close_later(session)
            raise
        for one in opened:
            session.parts.append(one.result())
        return session

    def close_later(self, session: Session) -> None:
        """Closes the session's parts without keeping the trajectory waiting."""
        self._live.discard(session.id)
        parts = {part.service.name: part.stub for part in session.parts}

        async def close() -> None:
            for name, service in self._services.items():
                await service.close_session(session.id, parts.get(name, service.stub))

        task = asyncio.get_running_loop().create_task(close())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    async def keep_leases(self) -> None:
        """Renews each service's leases three times a lease; runs until cancelled.

        Renewal is by owner, so a session whose closing failed would live on: what a service
        holds and no trajectory does is closed again.
        """
        async with asyncio.TaskGroup() as group:
            for service in self._services.values():
                group.create_task(service.keep_lease(self._owner, self._live))


class Session:
    """One trajectory's environment: a session of the same id on each service."""

    def __init__(self, identity: str, services: ToolServices) -> None:
        self.id = identity
        self.parts: list[_Part] = []
        self._services = services

    @property
    def tools(self) -> tuple[ToolSpec, ...]:
        return tuple(tool for part in self.parts for tool in part.tools)

    def dispatch(self, request: Call, place: CallPlace) -> PendingCall | CallOutcome:
        """Hands the call to the channel now; await its `result`.

        What no service could take is answered at once: it is the policy's mistake, and it reads
        so.
        """
        for part in self.parts:
            if not request.tool or any(tool.name == request.tool for tool in part.tools):
                try:
                    return PendingCall(part, request, place)
                except (TypeError, ValueError, OverflowError, MessageError) as error:
                    return refused(f"the arguments cannot be sent: {error}")
        names = ", ".join(tool.name for tool in self.tools) or "none"
        return refused(f"there is no tool {request.tool!r}, only {names}", UNKNOWN_TOOL)

    def close(self) -> None:
        self._services.close_later(self)


class _Service:
    """One tool service of the recipe."""

    def __init__(self, name: str, table: ToolTable) -> None:
        self.name = name
        self.table = table
        self.channel = open_channel(table.service, os.environ.get(TOKEN_VARIABLE, ""))
        self.stub = _stub(self.channel)
        self._stubs = {table.service: self.stub}
        self._channels = [self.channel]

    async def close(self) -> None:
        for channel in self._channels:
            await channel.close(None)

    async def describe(self) -> list[ToolSpec]:
        try:
            answer = await call(self.stub.ListTools, pb.ListToolsRequest(), timeout=10)
        except (ServiceError, TransportError) as error:
            raise StartupError(
                f"tools.{self.name}: no tool service answers at {self.table.service} ({error}); "
                f"start one with `toolsvc serve {self.name} --listen {self.table.service}`"
            ) from error
        tools = [spec(tool, self.name) for tool in answer.tools]
        missing = set(self.table.names) - {tool.name for tool in tools}
        if missing:
            raise StartupError(
                f"tools.{self.name}: {self.table.service} has no {', '.join(sorted(missing))}; "
                f"it has {', '.join(tool.name for tool in tools)}"
            )
        return tools

    async def open_session(self, session_id: str, owner: str, task: Task) -> _Part:
        try:
            metadata = wire.struct(task.metadata)
        except (TypeError, ValueError) as error:
            raise StartupError(
                f"task {task.id}: its metadata is not JSON-like ({error}); tools get it as it is"
            ) from error
        request = pb.OpenSessionRequest(
            session_id=session_id,
            owner=owner,
            lease=wire.duration(self.table.lease_s),
            tools=self.table.names,
            metadata=metadata,
            queue_limit=wire.duration(self.table.queue_limit_s),
        )
        deadline = self.table.queue_limit_s + OPEN_SECONDS
        for attempt in range(self.table.max_retries + 1):
            try:
                answer = await call(self.stub.OpenSession, request, timeout=deadline)
            except (ServiceError, TransportError) as error:
                if attempt == self.table.max_retries or not may_retry(error):
                    # INTERNAL is a fault, which may pass; the others are refusals.
                    refusal = isinstance(error, ServiceError) and error.reason != _FAULT
                    permanent = refusal and not may_retry(error)
                    raise ToolServiceFailed(
                        f"tools.{self.name}: {error}", permanent=permanent
                    ) from error
                await asyncio.sleep(backoff(attempt, error))
            else:
                stub = self._stub_at(answer.endpoint)
                tools = tuple(spec(tool, self.name) for tool in answer.tools)
                return _Part(self, stub, session_id, tools)
        raise AssertionError("unreachable")

    async def close_session(self, session_id: str, stub: ToolServiceAsyncStub) -> None:
        request = pb.CloseSessionRequest(session_id=session_id)
        try:
            await call(stub.CloseSession, request, timeout=30)
        except (ServiceError, TransportError) as error:
            log.info("close_failed", session=session_id, service=self.name, error=str(error))

    async def renew(self, owner: str) -> list[str]:
        """Sessions of this owner that the service holds, at all endpoints that it named."""
        request = pb.RenewLeasesRequest(owner=owner, lease=wire.duration(self.table.lease_s))
        held: list[str] = []
        for endpoint, stub in list(self._stubs.items()):
            try:
                answer = await call(stub.RenewLeases, request, timeout=10)
            except (ServiceError, TransportError) as error:
                log.warning("lease_renewal_failed", endpoint=endpoint, error=str(error))
            else:
                held.extend(answer.held)
        return held

    async def keep_lease(self, owner: str, live: Set[str]) -> None:
        while True:
            await asyncio.sleep(self.table.lease_s / 3)
            for session_id in await self.renew(owner):
                if session_id not in live:
                    for stub in self._stubs.values():
                        await self.close_session(session_id, stub)

    def _stub_at(self, endpoint: str) -> ToolServiceAsyncStub:
        if not endpoint:
            return self.stub
        if endpoint not in self._stubs:
            channel = open_channel(endpoint, os.environ.get(TOKEN_VARIABLE, ""))
            self._channels.append(channel)
            self._stubs[endpoint] = _stub(channel)
        return self._stubs[endpoint]


class _Part:
    """A session on one service, at the endpoint that holds it."""

    def __init__(
        self,
        service: _Service,
        stub: ToolServiceAsyncStub,
        session_id: str,
        tools: tuple[ToolSpec, ...],
    ) -> None:
        self.service = service
        self.stub = stub
        self.session_id = session_id
        self.tools = tools


class PendingCall:
    """A call in flight. Its first RPC is on the channel when the constructor returns.

    The constructor raises TypeError, ValueError, OverflowError or MessageError for arguments that
    no message can hold.
    """

    def __init__(self, part: _Part, request: Call, place: CallPlace) -> None:
        self._part = part
        table = part.service.table
        self._wait = min(table.run_limit_s + table.queue_limit_s, LONGEST_WAIT)
        self._message = pb.CallToolRequest(
            session_id=part.session_id,
            call_id=place.call_id,
            tool=request.tool,
            action=request.action,
            turn=place.turn,
            turns_left=place.turns_left,
            last_step=place.turns_left == 0,
            queue_limit=wire.duration(table.queue_limit_s),
            run_limit=wire.duration(table.run_limit_s),
            wait=wire.duration(self._wait),
        )
        if request.arguments is not None:
            self._message.arguments.CopyFrom(wire.struct(request.arguments))
            # Readers stop at a hundred levels, writers do not: find it here.
            pb.CallToolRequest.FromString(self._message.SerializeToString())
        self._rpc = self._send()
        self.dispatched_ns = time.monotonic_ns()

    def _send(self) -> grpc.aio.UnaryUnaryCall[pb.CallToolRequest, pb.CallToolResponse]:
        return self._part.stub.CallTool(self._message, timeout=self._wait + GRACE)

    async def result(self) -> CallOutcome:
        """SessionLost or ToolServiceFailed when the policy must not see the outcome."""
        service = self._part.service
        failures = 0
        while True:
            try:
                answer = await self._rpc
            except grpc.aio.AioRpcError as rpc_error:
                error = from_rpc_error(rpc_error)
                if isinstance(error, ServiceError) and error.reason in _LOST:
                    raise SessionLost(f"tools.{service.name}: {error}") from rpc_error
                failures += 1
                if failures > service.table.max_retries or not may_retry(error):
                    raise ToolServiceFailed(f"tools.{service.name}: {error}") from rpc_error
                await asyncio.sleep(backoff(failures - 1, error))
            else:
                if answer.HasField("result"):
                    return outcome(answer.result)
            self._rpc = self._send()

    def cancel(self) -> None:
        self._rpc.cancel()


_FAULT = reasons.ERROR_REASON_INTERNAL
_LOST = (
    reasons.ERROR_REASON_SESSION_LOST,
    reasons.ERROR_REASON_SESSION_NOT_FOUND,
    reasons.ERROR_REASON_SESSION_CLOSED,
)


def spec(tool: pb.ToolDescriptor, service: str) -> ToolSpec:
    """The engine's view of a descriptor."""
    kind = tool.action_format.WhichOneof("format")
    tag = tool.action_format.tag if kind == "tag" else tool.action_format.json_call
    return ToolSpec(
        name=tool.name,
        description=tool.description,
        usage=tool.usage,
        arguments_schema=wire.mapping(tool.arguments_schema),
        stop_strings=tuple(tool.stop_strings),
        open_tag=tag.open if kind != "raw" else "",
        close_tag=tag.close if kind != "raw" else "",
        argument=tool.action_format.tag.argument if kind == "tag" else "",
        json_call=kind == "json_call",
        parallel_calls=tool.parallel_calls,
        service=service,
    )


def refused(reason: str, kind: ToolErrorKind = ToolErrorKind.INVALID_ACTION) -> CallOutcome:
    """What the policy gets for an action that went to no service."""
    return CallOutcome(text="", valid=False, invalid_reason=reason, error=kind)


def outcome(result: pb.CallResult) -> CallOutcome:
    """The engine's view of a recorded result; media parts are named, not shown.

    A failure that shows nothing is shown by its message.
    """
    texts = [
        part.text if part.WhichOneof("content") == "text" else f"[{_media_type(part)}]"
        for part in result.observation
    ]
    failed = result.HasField("error")
    return CallOutcome(
        text="".join(texts) or result.error.message,
        valid=result.valid,
        invalid_reason=result.invalid_reason,
        done=result.done,
        reward=result.reward if result.HasField("reward") else None,
        error=ToolErrorKind(result.error.kind) if failed else ToolErrorKind.NONE,
        session_lost=result.error.session_lost,
        metrics=dict(result.metrics),
        truncated=result.truncated,
        isolation=result.isolation,
        tool=result.tool,
        queued_s=result.queued.ToTimedelta().total_seconds(),
        run_s=result.run.ToTimedelta().total_seconds(),
    )


def _media_type(part: pb.ObservationPart) -> str:
    if part.WhichOneof("content") == "media":
        return part.media.media_type
    return part.blob.media_type


def _stub(channel: grpc.aio.Channel) -> ToolServiceAsyncStub:
    return cast("ToolServiceAsyncStub", tool_pb2_grpc.ToolServiceStub(channel))
