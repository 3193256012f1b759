"""One tool service of the recipe, and the sessions there: opened, adopted, forked, closed.

Invariants
- A session's requests go to the endpoint that holds it, which may differ from the service's
  address.
- A session is closed even if its opening failed or was cancelled.
- While a service of the engine's own is down, nothing is opened there: its start is awaited.
- Adopting and forking neither run nor renew anything in the existing session. A service that cannot
  do it gives SessionLost or ForkRefused, never an outage.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TypeVar

import structlog
from grpc import StatusCode

from engine.core.images.media import Media
from engine.core.time_limit import Outage, TimeLimit, loop_now
from engine.core.tools.link.counts import ServiceStatistics
from engine.core.tools.link.endpoint import Endpoint
from engine.core.tools.link.retry_policy import Failure, FailureKind, RetryPolicy, failure_kind
from engine.core.tools.link.service_link import ASK_SECONDS, Connect, ServiceLink
from engine.core.tools.process import ToolProcess
from engine.core.tools.requests import open_request
from engine.core.tools.sessions.open_queue import OpenQueue, ServiceFull
from engine.core.tools.sessions.session import ServiceSession
from engine.core.tools.sessions.session_closer import SessionCloser
from engine.core.tools.spec import spec
from engine.errors import (
    AttemptFailed,
    Fenced,
    ForkRefused,
    OpenFailed,
    SessionLost,
    StartupError,
    ToolServiceFailed,
)
from engine.types import SessionRef, ToolSpec, without_fork
from toolwright import wire
from toolwright.common.v1 import reasons_pb2 as reasons
from toolwright.recipe import Tool as ToolTable
from toolwright.rpc.errors import ServiceError, TransportError
from toolwright.rpc.tool_service import blob_pieces
from toolwright.tool.v1 import tool_pb2 as pb
from toolwright.types import Task

Message = TypeVar("Message")

OPEN_SECONDS = 60.0
CLOSE_SECONDS = 10.0
CANCEL_SECONDS = 5.0

_MISSES = reasons.ERROR_REASON_BLOB_NOT_FOUND
_MAY_PASS = (reasons.ERROR_REASON_INTERNAL, _MISSES)
"""A fault, and media that a restart lost; the other reasons are refusals."""

log = structlog.get_logger("tools")


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
        """process: of a service that the engine starts itself; it is not started here. connect: see
        `ServiceLink`. Raises StartupError if a TLS file cannot be used."""
        self.name = name
        self.table = table
        self.address = process.address if process else table.service
        self.link = ServiceLink(name, table, self.address, connect)
        self.counts = self.link.counts
        self.sessions: dict[str, ServiceSession] = {}
        """Open sessions by id."""
        self.known: set[str] = set()
        """Ids of sessions that are open, being opened, or being closed."""
        self._owner = owner
        self._process = process
        self._queue = OpenQueue(name)
        self._closer = SessionCloser()
        self._takes_media = False

    @property
    def is_own(self) -> bool:
        """Whether the engine starts the service."""
        return self._process is not None

    @property
    def statistics(self) -> ServiceStatistics:
        return ServiceStatistics(
            open_sessions=len(self.sessions),
            calls_in_flight=self.link.calls_in_flight,
            opens_waiting=self._queue.waiting,
            calls=self.counts.calls,
            retries=dict(self.counts.retries),
            failures=dict(self.counts.failures),
            seconds_away=self.counts.seconds_away + self.link.seconds_away,
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
        await self.link.close()
        if self._process:
            await self._process.stop()

    async def describe(self, *, wait_until_up: bool = False) -> list[ToolSpec]:
        """Tools that the recipe uses, in the recipe's order. wait_until_up: whether to wait for an
        unreachable service. Raises StartupError if the service does not answer or lacks a tool."""
        answer = await self.link.list_tools(self.table.patience_s if wait_until_up else 0.0)
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

    async def open_session(
        self,
        session_id: str,
        task: Task,
        media: Sequence[Media] = (),
        *,
        clock: TimeLimit | None = None,
        queue: bool = True,
        fence: int = 0,
    ) -> ServiceSession:
        """Opens a session. The task's media go along if a tool of the service takes any. Their
        bytes are sent only if the service misses them.

        clock: stands still while the service is unreachable or full. Without `queue`, raises
        ServiceFull at once if others wait or the service is full. Raises ToolServiceFailed or
        SessionLost if the service refuses, or is unreachable beyond `patience_s`. Raises TaskUnfit
        for a task that cannot be sent.
        """
        request = await self._request(session_id, task, media)

        async def send(endpoint: Endpoint) -> pb.OpenSessionResponse:
            return await endpoint.unary(
                endpoint.stub.OpenSession,
                request,
                timeout=self.table.queue_limit_s + OPEN_SECONDS,
                wait=self._process is not None,
            )

        own = partial(self.link.endpoint_at, self.address)
        return await self._open(session_id, own, send, media, clock=clock, queue=queue, fence=fence)

    async def fork(
        self, parent: ServiceSession, session_id: str, task: Task, clock: TimeLimit | None = None
    ) -> ServiceSession:
        """A second session with the state of `parent`, or a fresh one if that has no state. `clock`
        stands still while the service is unreachable.

        Raises ForkRefused if the service cannot fork or has no room: waiting for a second session
        would hold the first one meanwhile. Raises SessionLost if it has lost the parent.
        """
        refusal = f"tools.{self.name}: session {parent.session_id} cannot be forked"
        if fixed := without_fork(parent.tools):
            raise ForkRefused(f"{refusal}: {', '.join(fixed)} cannot", permanent=True)

        try:
            if parent.stateless:
                return await self.open_session(
                    session_id, task, parent.media, clock=clock, queue=False, fence=parent.fence
                )
            request = pb.ForkSessionRequest(
                session_id=parent.session_id,
                open=await self._request(session_id, task, parent.media),
            )

            async def send(endpoint: Endpoint) -> pb.OpenSessionResponse:
                forked: pb.ForkSessionResponse = await endpoint.unary(
                    endpoint.stub.ForkSession,
                    request,
                    timeout=self.table.queue_limit_s + OPEN_SECONDS,
                )
                return forked.session

            return await self._open(
                session_id,
                lambda: parent.endpoint,
                send,
                parent.media,
                clock=clock,
                queue=False,
                fence=parent.fence,
            )
        except ServiceFull as error:
            raise ForkRefused(f"{refusal} now: the service is full") from error
        except AttemptFailed as error:
            if parent.stateless or not _is_refusal(error):
                raise
            raise ForkRefused(f"{refusal}: {error}", permanent=True) from error

    async def adopt(self, ref: SessionRef, fence: int = 0) -> tuple[ServiceSession, frozenset[str]]:
        """A session of an earlier life, and the ids of all calls that have begun to run in it.

        Raises SessionLost if it is gone or the service cannot say. Raises Fenced if a later life
        has it. Raises ToolServiceFailed if the service stays unreachable beyond its `patience_s`.
        """
        self.known.add(ref.session_id)
        address = self.link.recorded_address(ref.endpoint)
        request = pb.GetSessionRequest(session_id=ref.session_id, fence=fence)

        async def get() -> pb.GetSessionResponse:
            endpoint = self.link.endpoint_at(address)
            return await endpoint.unary(endpoint.stub.GetSession, request, timeout=ASK_SECONDS)

        async def find() -> pb.GetSessionResponse:
            """Asks at the known address, then once more at the address in the answer. If no
            endpoint answers, the second question goes to the service's own address: a replaced
            worker never comes back."""
            nonlocal address
            try:
                return await get()
            except ServiceError as error:
                if failure_kind(error) is not FailureKind.MOVED or error.endpoint == address:
                    raise
                address = error.endpoint
            except TransportError as error:
                if failure_kind(error) is not FailureKind.AWAY or address == self.address:
                    raise
                address = self.address
            return await get()

        try:
            held = await self._until_answered(
                find, RetryPolicy(self.table.patience_s), Outage(None), needs_room=False
            )
        except AttemptFailed as error:
            if not _is_refusal(error):
                raise
            raise SessionLost(
                f"{error}: the calls of session {ref.session_id} are unknown"
            ) from error
        session = self.sessions[ref.session_id] = ServiceSession(
            self.link,
            SessionRef(
                service=self.name,
                session_id=ref.session_id,
                endpoint=held.endpoint or address,
                tools=tuple(spec(tool, self.name) for tool in held.tools) or ref.tools,
                cancels=ref.cancels,
            ),
            fence=fence if held.fenced else 0,
        )
        return session, frozenset(held.call_ids)

    def close_in_background(
        self, session: ServiceSession, cancels: Sequence[pb.CancelCallRequest] = ()
    ) -> None:
        """Stops the calls, then closes the session, in the background."""
        self.sessions.pop(session.session_id, None)
        self._closer.add(
            partial(self._close, session.session_id, session.address, cancels, session.fence)
        )

    def close_if_open(self, session_id: str, address: str = "", fence: int = 0) -> None:
        """Closes a session that may be at `address`, at any endpoint if that is empty, or nowhere.
        A later holder of the session, with a higher fence, keeps it."""
        self.sessions.pop(session_id, None)
        self.known.add(session_id)
        where = [self.link.recorded_address(address)] if address else self.link.addresses
        for endpoint in where:
            self._closer.add(partial(self._close, session_id, endpoint, (), fence))

    async def _request(
        self, session_id: str, task: Task, media: Sequence[Media]
    ) -> pb.OpenSessionRequest:
        sent = media if self._takes_media else ()
        return await open_request(session_id, self._owner, self.table, task, sent)

    async def _open(
        self,
        session_id: str,
        where: Callable[[], Endpoint],
        send: Callable[[Endpoint], Awaitable[pb.OpenSessionResponse]],
        media: Sequence[Media],
        *,
        clock: TimeLimit | None,
        queue: bool,
        fence: int,
    ) -> ServiceSession:
        """The session that `send` opens."""
        missing = {one.blob.sha256: one for one in media}

        async def attempt() -> pb.OpenSessionResponse:
            """Sends the request. Sends it again after media that the service reports missing."""
            endpoint = where()
            while True:
                try:
                    return await send(endpoint)
                except ServiceError as error:
                    if error.reason != _MISSES or error.subject not in missing:
                        raise
                    wanted = error.subject
                pieces = blob_pieces(wire.blob_to_proto(missing[wanted].blob), missing[wanted].data)
                await endpoint.unary(endpoint.stub.PutBlob, pieces, timeout=OPEN_SECONDS)
                # Once: a service that reports them missing again is not believed.
                del missing[wanted]

        began = loop_now()
        self.known.add(session_id)
        try:
            with Outage(clock) as outage:
                opened = await self._queue.run(
                    partial(
                        self._until_answered, attempt, RetryPolicy(self.table.patience_s), outage
                    ),
                    wait=queue,
                    on_wait=partial(outage.noticed, began),
                )
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
        self.counts.opened += 1
        session = self.sessions[session_id] = ServiceSession(
            self.link, ref, media, fence if opened.fenced else 0
        )
        return session

    async def _until_answered(
        self,
        attempt: Callable[[], Awaitable[Message]],
        retry_policy: RetryPolicy,
        outage: Outage,
        *,
        needs_room: bool = True,
    ) -> Message:
        """Repeats `attempt` until the service has accepted or refused. Raises ServiceFull if it
        needs room and the service has none."""
        while True:
            if self._process:
                await self._process.serving()
            began = loop_now()
            try:
                return await attempt()
            except (ServiceError, TransportError) as error:
                pause = retry_policy.after_failure(error, loop_now(), self.counts)
                if pause is None:
                    raise self._end(error) from error
                if needs_room and failure_kind(error) is FailureKind.FULL:
                    raise ServiceFull(pause) from error
                outage.noticed(began)
                await asyncio.sleep(pause)

    def _end(self, error: Failure) -> SessionLost | ToolServiceFailed | Fenced:
        message, kind = f"tools.{self.name}: {error}", failure_kind(error)
        if kind is FailureKind.FENCED:
            return Fenced(message)
        if kind is FailureKind.LOST:
            return SessionLost(message)
        if kind is not FailureKind.REFUSED or isinstance(error, TransportError):
            return ToolServiceFailed(message)
        if error.reason in _MAY_PASS:
            return OpenFailed(message, service=self.name)
        return ToolServiceFailed(message, permanent=True)

    async def _close(
        self,
        session_id: str,
        address: str,
        cancels: Sequence[pb.CancelCallRequest],
        fence: int,
    ) -> None:
        endpoint = self.link.endpoint_at(address)
        try:
            if cancels:
                await asyncio.gather(*(self._cancel(endpoint, request) for request in cancels))
            request = pb.CloseSessionRequest(session_id=session_id, fence=fence)
            await endpoint.unary(endpoint.stub.CloseSession, request, timeout=CLOSE_SECONDS)
            self._queue.made_room()
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


def _is_refusal(error: AttemptFailed) -> bool:
    """Whether the service will never do it: it says so, or it does not know the method."""
    cause = error.__cause__
    unknown = (
        isinstance(cause, ServiceError | TransportError) and cause.code is StatusCode.UNIMPLEMENTED
    )
    return not isinstance(error, SessionLost) and (error.permanent or unknown)
