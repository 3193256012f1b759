"""Tool services as a trajectory sees them: open a session, keep it, close it. Its calls are
`toolcalls`.

Invariants
- Every session that was opened is closed, also after failure and cancellation, and its calls
  still in flight are cancelled before; what a close cannot reach, the lease's end reaps.
- A session is spoken to at the endpoint that holds it, which may be another than the service's
  address.
- A session of which a renewal says that it is lost ends its attempt there and then.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, cast

import structlog
from google.protobuf.message import Error as MessageError

from engine.errors import AttemptFailed, SessionLost, StartupError, ToolServiceFailed
from engine.toolcalls import CallPlace, PendingCall, refused
from engine.types import Call, CallOutcome, ToolSpec

if TYPE_CHECKING:
    from toolwright.tool.v1.tool_pb2_grpc import ToolServiceAsyncStub
from toolwright import wire
from toolwright.common.v1 import reasons_pb2 as reasons
from toolwright.recipe import Tool as ToolTable
from toolwright.rpc.channel import backoff, call, may_retry, open_channel
from toolwright.rpc.errors import ServiceError, TransportError
from toolwright.rpc.options import TOKEN_VARIABLE
from toolwright.rpc.tls import TlsError, read_authority
from toolwright.tool.v1 import tool_pb2 as pb
from toolwright.tool.v1 import tool_pb2_grpc
from toolwright.types import Task, ToolErrorKind

OPEN_SECONDS = 60.0

UNKNOWN_TOOL = ToolErrorKind.UNKNOWN_TOOL

log = structlog.get_logger("tools")


class ToolServices:
    """All services of a recipe, the leases of this engine's sessions, and their closing."""

    def __init__(self, tables: Mapping[str, ToolTable], owner: str) -> None:
        """StartupError for a `tls_ca` that cannot be used."""
        self._owner = owner
        self._services = {name: _Service(name, table) for name, table in tables.items()}
        self._closing: set[asyncio.Task[None]] = set()
        self._live: dict[str, Session] = {}

    async def open(self) -> dict[str, list[ToolSpec]]:
        """Connects, closes what an earlier life of this owner left, and lists the tools.

        StartupError names the service that does not answer or lacks a tool.
        """
        found = {}
        for name, service in self._services.items():
            found[name] = await service.describe()
            for session_id in await service.renew(self._owner, self._live):
                await service.close_session(session_id, service.address)
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
        session = self._live[session_id] = Session(session_id, self)
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
        self._live.pop(session.id, None)
        endpoints = {part.name: part.endpoint for part in session.parts}

        async def close() -> None:
            await asyncio.gather(*(pending.cancel() for pending in session.pending))
            for name, service in self._services.items():
                await service.close_session(session.id, endpoints.get(name, service.address))

        task = asyncio.get_running_loop().create_task(close())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    async def keep_leases(self) -> None:
        """Renews each service's leases three times a lease; runs until cancelled.

        Sessions that a service has lost are `lost`. Renewal is by owner, so a session whose closing
        failed would live on: what a service holds and no trajectory does is closed again.
        """
        async with asyncio.TaskGroup() as group:
            for service in self._services.values():
                group.create_task(service.keep_lease(self._owner, self._live))


class Session:
    """One trajectory's environment: a session of the same id on each service."""

    def __init__(self, identity: str, services: ToolServices) -> None:
        self.id = identity
        self.parts: list[_Part] = []
        self.pending: list[PendingCall] = []
        """Calls of the turn in progress."""
        self._services = services
        self._held: asyncio.Timeout | None = None
        self._lost = ""

    @property
    def tools(self) -> tuple[ToolSpec, ...]:
        return tuple(tool for part in self.parts for tool in part.tools)

    @asynccontextmanager
    async def held(self) -> AsyncIterator[None]:
        """Ends the block with SessionLost as soon as the session is known to be lost."""
        held = asyncio.timeout(0.0 if self._lost else None)
        try:
            async with held:
                self._held = held
                yield
        except TimeoutError:
            if not held.expired():
                raise
            raise SessionLost(self._lost) from None
        finally:
            self._held = None

    def lose(self, service: str) -> None:
        """`service` has told that it does not hold the session any more."""
        if self._lost:
            return
        self._lost = f"tools.{service}: session {self.id} is lost, says the renewal of its lease"
        if self._held is not None:
            self._held.reschedule(asyncio.get_running_loop().time())

    def dispatch(self, request: Call, place: CallPlace) -> PendingCall | CallOutcome:
        """Hands the call to the channel now; await its `result`.

        What no service could take is answered at once: it is the policy's mistake, and it reads
        so.
        """
        for part in self.parts:
            if not request.tool or any(tool.name == request.tool for tool in part.tools):
                try:
                    pending = PendingCall(part, request, place)
                except (TypeError, ValueError, OverflowError, MessageError) as error:
                    return refused(f"the arguments cannot be sent: {error}")
                self.pending = [one for one in self.pending if not one.settled]
                self.pending.append(pending)
                return pending
        names = ", ".join(tool.name for tool in self.tools) or "none"
        return refused(f"there is no tool {request.tool!r}, only {names}", UNKNOWN_TOOL)

    def close(self) -> None:
        self._services.close_later(self)


class _Service:
    """One tool service of the recipe."""

    def __init__(self, name: str, table: ToolTable) -> None:
        self.name = name
        self.table = table
        try:
            self._authority = None if table.tls_ca is None else read_authority(table.tls_ca)
        except TlsError as error:
            raise StartupError(f"tools.{name}.tls_ca: {error}") from error
        self._endpoints: dict[str, _Endpoint] = {}
        self._idle: set[str] = set()
        """Endpoints that held nothing at the last renewal."""

    @property
    def address(self) -> str:
        return self.table.service

    @property
    def stub(self) -> ToolServiceAsyncStub:
        """Of the service's own address."""
        return self.stub_at(self.address)

    async def close(self) -> None:
        for endpoint in self._endpoints.values():
            await endpoint.channel.close(None)

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
                return _Part(self, answer)
        raise AssertionError("unreachable")

    async def close_session(self, session_id: str, endpoint: str) -> None:
        request = pb.CloseSessionRequest(session_id=session_id)
        try:
            await call(self.stub_at(endpoint).CloseSession, request, timeout=30)
        except (ServiceError, TransportError) as error:
            log.info("close_failed", session=session_id, service=self.name, error=str(error))

    async def renew(self, owner: str, live: Mapping[str, Session]) -> list[str]:
        """Sessions of this owner that the service holds, at its address and at every endpoint where
        it put some of `live`; those of `live` that are not there any more are told so."""
        believed: dict[str, list[str]] = {self.address: []}
        for session in live.values():
            for part in session.parts:
                if part.service is self:
                    believed.setdefault(part.endpoint, []).append(session.id)
        answers = await asyncio.gather(
            *(self._renew_at(endpoint, owner, believed[endpoint]) for endpoint in believed)
        )
        for session_id in {name for answer in answers for name in answer.lost}:
            if session_id in live:  # it may have been closed meanwhile
                live[session_id].lose(self.name)
        await self._forget_idle(self._endpoints.keys() - believed)
        return list(dict.fromkeys(name for answer in answers for name in answer.held))

    async def _renew_at(
        self, endpoint: str, owner: str, believed: list[str]
    ) -> pb.RenewLeasesResponse:
        """What it answers; nothing lost and nothing held where it does not."""
        request = pb.RenewLeasesRequest(
            owner=owner, lease=wire.duration(self.table.lease_s), session_ids=believed
        )
        try:
            return await call(self.stub_at(endpoint).RenewLeases, request, timeout=10)
        except (ServiceError, TransportError) as error:
            log.warning("lease_renewal_failed", endpoint=endpoint, error=str(error))
            return pb.RenewLeasesResponse()

    async def keep_lease(self, owner: str, live: Mapping[str, Session]) -> None:
        while True:
            await asyncio.sleep(self.table.lease_s / 3)
            for session_id in await self.renew(owner, live):
                if session_id not in live:
                    for endpoint in list(self._endpoints):
                        await self.close_session(session_id, endpoint)

    async def _forget_idle(self, idle: set[str]) -> None:
        """Workers come and go, each with an endpoint of its own. One is kept for a second renewal,
        since a session's close may still be under way there."""
        for address in idle & self._idle:
            await self._endpoints.pop(address).channel.close(None)
        self._idle = idle

    def stub_at(self, address: str) -> ToolServiceAsyncStub:
        endpoint = self._endpoints.get(address)
        if endpoint is None:
            endpoint = self._endpoints[address] = _Endpoint(address, self._authority)
        return endpoint.stub


class _Endpoint:
    """A channel to one process of a service."""

    def __init__(self, address: str, authority: bytes | None) -> None:
        self.channel = open_channel(address, os.environ.get(TOKEN_VARIABLE, ""), authority)
        self.stub = cast("ToolServiceAsyncStub", tool_pb2_grpc.ToolServiceStub(self.channel))


class _Part:
    """A session on one service, at the endpoint that holds it."""

    def __init__(self, service: _Service, opened: pb.OpenSessionResponse) -> None:
        self.service = service
        self.session_id = opened.session_id
        self.endpoint = opened.endpoint or service.address
        self.tools = tuple(spec(tool, service.name) for tool in opened.tools)
        self.cancels = any(tool.capabilities.cancel for tool in opened.tools)

    @property
    def name(self) -> str:
        return self.service.name

    @property
    def table(self) -> ToolTable:
        return self.service.table

    @property
    def stub(self) -> ToolServiceAsyncStub:
        return self.service.stub_at(self.endpoint)

    def move(self, endpoint: str) -> None:
        log.info("session_moved", session=self.session_id, endpoint=endpoint)
        self.endpoint = endpoint


_FAULT = reasons.ERROR_REASON_INTERNAL


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
