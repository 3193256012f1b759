"""Sessions from existing ones: adopted by a later life of the engine, or forked.

Invariants
- Neither runs or renews anything in the existing session.
- A service that cannot do it gives SessionLost or ForkRefused, never an outage.
"""

from __future__ import annotations

import grpc

from engine.core.time_limit import TimeLimit
from engine.core.tools.link.endpoint import Endpoint
from engine.core.tools.link.retry_policy import FailureKind, failure_kind
from engine.core.tools.service import ASK_SECONDS, Service
from engine.core.tools.sessions.session import ServiceSession
from engine.core.tools.sessions.session_opener import OPEN_SECONDS, ServiceFull
from engine.core.tools.spec import spec
from engine.errors import AttemptFailed, ForkRefused, SessionLost
from engine.types import SessionRef, without_fork
from toolwright.rpc.errors import ServiceError, TransportError
from toolwright.tool.v1 import tool_pb2 as pb
from toolwright.types import Task


async def adopt_session(service: Service, ref: SessionRef) -> tuple[ServiceSession, frozenset[str]]:
    """A session of an earlier life, and the ids of all calls that have begun to run in it.

    Raises SessionLost if it is gone or its service cannot say. Raises ToolServiceFailed if the
    service stays unreachable beyond its `patience_s`.
    """
    service.known.add(ref.session_id)
    search = _Search(service, ref)
    try:
        held = await service.opener.query(search.endpoint, search.query)
    except SessionLost:
        raise
    except AttemptFailed as error:
        if not error.permanent and not _cannot_tell(error.__cause__):
            raise
        raise SessionLost(f"{error}: the calls of session {ref.session_id} are unknown") from error
    session = ServiceSession(
        service,
        SessionRef(
            service=service.name,
            session_id=ref.session_id,
            endpoint=held.endpoint or search.address,
            tools=tuple(spec(tool, service.name) for tool in held.tools) or ref.tools,
            cancels=ref.cancels,
        ),
    )
    service.sessions[ref.session_id] = session
    return session, frozenset(held.call_ids)


async def fork_session(
    service: Service,
    parent: ServiceSession,
    session_id: str,
    task: Task,
    clock: TimeLimit | None = None,
) -> ServiceSession:
    """A second session with the state of `parent`, or a fresh one if that has no state. `clock`
    stands still while the service is unreachable.

    Raises ForkRefused if the service cannot fork or has no room: waiting for a second session would
    hold the first one meanwhile. Raises SessionLost if it has lost the parent.
    """
    refusal = f"tools.{service.name}: session {parent.session_id} cannot be forked"
    try:
        if parent.stateless:
            return await service.open_session(
                session_id, task, parent.media, clock=clock, queue=False
            )
        return await _fork(service, parent, session_id, task, clock, refusal)
    except ServiceFull as error:
        raise ForkRefused(f"{refusal} now: the service is full") from error


async def _fork(
    service: Service,
    parent: ServiceSession,
    session_id: str,
    task: Task,
    clock: TimeLimit | None,
    refusal: str,
) -> ServiceSession:
    fixed = without_fork(parent.tools)
    if fixed:
        raise ForkRefused(f"{refusal}: {', '.join(fixed)} cannot", permanent=True)
    request = pb.ForkSessionRequest(
        session_id=parent.session_id, open=await service.request(session_id, task, parent.media)
    )

    async def send(endpoint: Endpoint) -> pb.OpenSessionResponse:
        forked: pb.ForkSessionResponse = await endpoint.unary(
            endpoint.stub.ForkSession,
            request,
            timeout=service.table.queue_limit_s + OPEN_SECONDS,
        )
        return forked.session

    sending = service.opener.open(
        lambda: parent.endpoint, send, media=parent.media, clock=clock, queue=False
    )
    try:
        return await service.opened(session_id, sending, parent.media)
    except SessionLost:
        raise
    except AttemptFailed as error:
        if not error.permanent and not _cannot_tell(error.__cause__):
            raise
        raise ForkRefused(f"{refusal}: {error}", permanent=True) from error


class _Search:
    """The search for a session whose known address may be out of date."""

    def __init__(self, service: Service, ref: SessionRef) -> None:
        self._service = service
        self._request = pb.GetSessionRequest(session_id=ref.session_id)
        self.address = service.recorded_address(ref.endpoint)

    def endpoint(self) -> Endpoint:
        return self._service.endpoint_at(self.address)

    async def query(self, endpoint: Endpoint) -> pb.GetSessionResponse:
        """Asks at the known address, then once more at the address in the answer. If no endpoint
        answers, the second question goes to the service's own address: a replaced worker never
        comes back."""
        try:
            return await self._look(endpoint)
        except ServiceError as error:
            if failure_kind(error) is not FailureKind.MOVED or error.endpoint == self.address:
                raise
            self.address = error.endpoint
        except TransportError as error:
            if failure_kind(error) is not FailureKind.AWAY or self.address == self._service.address:
                raise
            self.address = self._service.address
        return await self._look(self.endpoint())

    async def _look(self, endpoint: Endpoint) -> pb.GetSessionResponse:
        found: pb.GetSessionResponse = await endpoint.unary(
            endpoint.stub.GetSession, self._request, timeout=ASK_SECONDS
        )
        return found


def _cannot_tell(error: BaseException | None) -> bool:
    """Whether the service does not know the method."""
    if not isinstance(error, ServiceError | TransportError):
        return False
    return error.code is grpc.StatusCode.UNIMPLEMENTED
