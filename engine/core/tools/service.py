"""One tool service of the recipe: its tools and its sessions, at any endpoints.

Invariants
- A session's requests go to the endpoint that holds it, which may differ from the service's
  address.
- A session is closed even if its opening failed or was cancelled.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

import grpc.aio
import structlog
from google.protobuf.struct_pb2 import Struct
from grpc import StatusCode

from engine.core.images.media import Media
from engine.core.time_limit import TimeLimit
from engine.core.tools.link.counts import ServiceCounts, ServiceStatistics
from engine.core.tools.link.endpoint import Endpoint
from engine.core.tools.link.retry_policy import RetryPolicy, failure_kind, suggested_pause
from engine.core.tools.process import ToolProcess
from engine.core.tools.sessions.session import ServiceSession
from engine.core.tools.sessions.session_closer import SessionCloser
from engine.core.tools.sessions.session_opener import OPEN_SECONDS, ServiceFull, SessionOpener
from engine.core.tools.spec import spec
from engine.errors import StartupError, TaskUnfit
from engine.types import SessionRef, ToolSpec
from toolwright import wire
from toolwright.json_data import is_large
from toolwright.recipe import Tool as ToolTable
from toolwright.rpc.channel import open_channel
from toolwright.rpc.errors import ServiceError, TransportError
from toolwright.rpc.options import TOKEN_VARIABLE, may_have_token
from toolwright.rpc.tls import Certificate, TlsError, read_authority, read_certificate
from toolwright.tool.v1 import tool_pb2 as pb
from toolwright.types import Task

ASK_SECONDS = 10.0
"""Timeout of requests that a service answers from memory."""
CLOSE_SECONDS = 10.0
CANCEL_SECONDS = 5.0

log = structlog.get_logger("tools")

Connect = Callable[[str], grpc.aio.Channel]
"""Opens a channel to an address."""


class Service:
    """One tool service of the recipe."""

    def __init__(
        self,
        name: str,
        table: ToolTable,
        owner: str,
        process: ToolProcess | None = None,
        *,
        connect: Connect | None = None,
    ) -> None:
        """process: of a service that the engine starts itself; it is not started here. connect:
        None = gRPC, with the table's certificates and the environment's token. Raises StartupError
        if a TLS file cannot be used."""
        self.name = name
        self.table = table
        self.owner = owner
        self.counts = ServiceCounts()
        self.sessions: dict[str, ServiceSession] = {}
        """Open sessions by id."""
        self.known: set[str] = set()
        """Ids of sessions that are open, being opened, or being closed."""
        self._process = process
        try:
            self._authority = None if table.tls_ca is None else read_authority(table.tls_ca)
        except TlsError as error:
            raise StartupError(f"tools.{name}.tls_ca: {error}") from error
        try:
            self._identity = _identity(table)
        except TlsError as error:
            raise StartupError(f"tools.{name}.tls_cert: {error}") from error
        self._token = os.environ.get(TOKEN_VARIABLE, "")
        self._connect = connect or self._over_grpc
        self._endpoints: dict[str, Endpoint] = {}
        self.opener = SessionOpener(name, table, self.counts, process)
        self._closer = SessionCloser()
        self._takes_media = False

    @property
    def address(self) -> str:
        return self._process.address if self._process else self.table.service

    @property
    def statistics(self) -> ServiceStatistics:
        endpoints = self._endpoints.values()
        return ServiceStatistics(
            open_sessions=len(self.sessions),
            calls_in_flight=sum(one.calls_in_flight for one in endpoints),
            opens_waiting=self.opener.line.waiting,
            calls=self.counts.calls,
            retries=dict(self.counts.retries),
            failures=dict(self.counts.failures),
            seconds_away=self.counts.seconds_away + sum(one.seconds_away for one in endpoints),
            restarts=self._process.restarts if self._process else 0,
        )

    async def start(self) -> None:
        """Starts the service if it is the engine's. Raises StartupError if it does not start."""
        if self._process:
            await self._process.start()

    async def keep_running(self) -> None:
        """Restarts the service whenever it has ended, if it is the engine's."""
        if self._process:
            await self._process.keep_running()

    async def close(self) -> None:
        """Closes the sessions, then the channels, then the engine's own process."""
        await self._closer.drain()
        for endpoint in self._endpoints.values():
            await endpoint.close()
        if self._process:
            await self._process.stop()

    async def describe(self, *, wait_until_up: bool = False) -> list[ToolSpec]:
        """Tools that the recipe uses, in the recipe's order. wait_until_up: whether to wait for an
        unreachable service. Raises StartupError if the service does not answer or lacks a tool."""
        answer = await self._list_tools(
            RetryPolicy(self.table.patience_s if wait_until_up else 0.0)
        )
        self._takes_media = any(tool.capabilities.media for tool in answer.tools)
        tools = [spec(tool, self.name) for tool in answer.tools]
        missing = set(self.table.names) - {tool.name for tool in tools}
        if missing:
            raise StartupError(
                f"tools.{self.name}: {self.table.where} has no {', '.join(sorted(missing))}; "
                f"it has {', '.join(tool.name for tool in tools)}"
            )
        wanted = self.table.names or [tool.name for tool in tools]
        return [tool for name in dict.fromkeys(wanted) for tool in tools if tool.name == name]

    async def _list_tools(self, retry_policy: RetryPolicy) -> pb.ListToolsResponse:
        endpoint = self.endpoint_at(self.address)
        while True:
            began = asyncio.get_running_loop().time()
            try:
                answer: pb.ListToolsResponse = await endpoint.unary(
                    endpoint.stub.ListTools, pb.ListToolsRequest(), timeout=ASK_SECONDS
                )
            except (ServiceError, TransportError) as error:
                pause = retry_policy.after(failure_kind(error), began, suggested_pause(error))
                if isinstance(error, TransportError) and error.code is StatusCode.UNAUTHENTICATED:
                    raise StartupError(
                        f"tools.{self.name}: the service at {self.address} answers and refuses "
                        f"this engine ({error})"
                    ) from error
                if pause is None:
                    raise StartupError(
                        f"tools.{self.name}: no tool service answers at {self.address} ({error}); "
                        f"start one with `toolsvc serve TOOL --listen {self.address}`, or correct "
                        f"tools.{self.name}.service"
                    ) from error
                await asyncio.sleep(pause)
            else:
                return answer

    async def open_session(
        self,
        session_id: str,
        task: Task,
        media: Sequence[Media] = (),
        *,
        clock: TimeLimit | None = None,
        queue: bool = True,
    ) -> ServiceSession:
        """Opens a session. The task's media go along if a tool of the service takes any. Their
        bytes are sent only if the service misses them.

        Raises ServiceFull like the opener. Raises ToolServiceFailed or SessionLost if the session
        does not open, TaskUnfit for a task that cannot be sent.
        """
        request = await self.request(session_id, task, media)

        async def send(endpoint: Endpoint) -> pb.OpenSessionResponse:
            opened: pb.OpenSessionResponse = await endpoint.unary(
                endpoint.stub.OpenSession,
                request,
                timeout=self.table.queue_limit_s + OPEN_SECONDS,
                wait=self._process is not None,
            )
            return opened

        return await self.opened(
            session_id,
            self.opener.open(self._own_endpoint, send, media=media, clock=clock, queue=queue),
            media,
        )

    def close_in_background(
        self, session: ServiceSession, cancels: Sequence[pb.CancelCallRequest] = ()
    ) -> None:
        """Stops the calls, then closes the session, in the background."""
        self.sessions.pop(session.session_id, None)
        self._closer.add(partial(self._close, session.session_id, session.address, cancels))

    def close_if_open(self, session_id: str, address: str = "") -> None:
        """Closes a session that may be at `address`, at any endpoint if that is empty, or
        nowhere."""
        self.known.add(session_id)
        for endpoint in [self.recorded_address(address)] if address else list(self._endpoints):
            self._closer.add(partial(self._close, session_id, endpoint, ()))

    def recorded_address(self, address: str) -> str:
        """Address at which to look for a session of an earlier life. A stranger may have written
        the journal, so the service's own address replaces one on another machine; the service knows
        its workers."""
        return address if may_have_token(address, self.address) else self.address

    def endpoint_at(self, address: str) -> Endpoint:
        """The service's process at `address`."""
        endpoint = self._endpoints.get(address)
        if endpoint is None:
            channel = self._connect(address)
            endpoint = Endpoint(self.name, address, self.counts, channel, self._token)
            self._endpoints[address] = endpoint
        return endpoint

    def _over_grpc(self, address: str) -> grpc.aio.Channel:
        return open_channel(address, self._token, self._authority, self._identity)

    @property
    def idle_endpoints(self) -> set[str]:
        """Addresses without a session or a call in flight, except the service's own."""
        used = {session.address for session in self.sessions.values()} | {self.address}
        return {
            address
            for address, endpoint in self._endpoints.items()
            if address not in used and not endpoint.calls_in_flight
        }

    async def forget(self, address: str) -> None:
        """Closes the channel to a worker's endpoint: workers come and go."""
        endpoint = self._endpoints.pop(address, None)
        if endpoint is not None:
            await endpoint.close()

    def _own_endpoint(self) -> Endpoint:
        return self.endpoint_at(self.address)

    async def request(
        self, session_id: str, task: Task, media: Sequence[Media]
    ) -> pb.OpenSessionRequest:
        """The request that opens a session. Raises TaskUnfit for a task that cannot be sent. Large
        metadata are converted in a thread, so that other trajectories go on meanwhile."""
        try:
            if is_large(task.metadata):
                metadata, exact = await asyncio.to_thread(_metadata, task)
            else:
                metadata, exact = _metadata(task)
        except (TypeError, ValueError) as error:
            raise TaskUnfit(
                f"task {task.id}: its metadata is not JSON-like ({error}); tools get it as it is"
            ) from error
        return pb.OpenSessionRequest(
            session_id=session_id,
            owner=self.owner,
            lease=wire.duration(self.table.lease_s),
            tools=self.table.names,
            metadata=metadata,
            metadata_json=exact,
            queue_limit=wire.duration(self.table.queue_limit_s),
            blobs=[wire.blob_to_proto(one.blob) for one in media if self._takes_media],
        )

    async def opened(
        self, session_id: str, opening: Awaitable[pb.OpenSessionResponse], media: Sequence[Media]
    ) -> ServiceSession:
        """The session that `opening` opens."""
        self.known.add(session_id)
        try:
            opened = await opening
        except ServiceFull:
            self.known.discard(session_id)
            raise
        except BaseException:  # it may be open there anyway, also after a cancellation
            self.close_if_open(session_id, self.address)
            raise
        ref = SessionRef(
            service=self.name,
            session_id=session_id,
            endpoint=opened.endpoint or self.address,
            tools=tuple(spec(tool, self.name) for tool in opened.tools),
            cancels=any(tool.capabilities.cancel for tool in opened.tools),
        )
        session = self.sessions[session_id] = ServiceSession(self, ref, media)
        self.counts.opened += 1
        return session

    async def _close(
        self, session_id: str, address: str, cancels: Sequence[pb.CancelCallRequest]
    ) -> None:
        endpoint = self.endpoint_at(address)
        try:
            if cancels:
                await asyncio.gather(*(self._cancel(endpoint, request) for request in cancels))
            request = pb.CloseSessionRequest(session_id=session_id)
            await endpoint.unary(endpoint.stub.CloseSession, request, timeout=CLOSE_SECONDS)
            self.opener.line.made_room()
        except (ServiceError, TransportError) as error:
            log.info("close_failed", session=session_id, service=self.name, error=str(error))
        finally:
            self.known.discard(session_id)

    async def _cancel(self, endpoint: Endpoint, request: pb.CancelCallRequest) -> None:
        """Never raises, because a session's end stops its calls too."""
        try:
            await endpoint.unary(endpoint.stub.CancelCall, request, timeout=CANCEL_SECONDS)
        except (ServiceError, TransportError) as error:
            log.info("cancel_failed", call=request.call_id, error=str(error))


def _metadata(task: Task) -> tuple[Struct, str]:
    return wire.struct(task.metadata), wire.exact_json(task.metadata)


def _identity(table: ToolTable) -> Certificate | None:
    if table.tls_cert is None or table.tls_key is None:
        return None
    return read_certificate(table.tls_cert, table.tls_key)
