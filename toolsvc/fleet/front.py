"""ToolService for clients: one address for the sessions of all hosts.

It holds the table of sessions and the blobs of tasks, and passes every request on to the session's
host. The host's reply is the answer. A host that died is always reported as SESSION_LOST.

If hosts have endpoints of their own, answers about a session name its host's endpoint. Calls are
then not passed on: they are refused with WRONG_ENDPOINT and nothing runs. Otherwise the client
would never notice that each call takes two hops.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Iterable, Iterator
from typing import Any

from toolsvc.edge.call_stream import Asked
from toolsvc.edge.large import converted
from toolsvc.edge.servicer import Servicer
from toolsvc.edge.wire import (
    DEFAULT_LEASE,
    error_of,
    fork_from_proto,
    open_from_proto,
    require,
    seconds_of,
)
from toolsvc.errors import Reason, Refused
from toolsvc.fleet.link import HostLink, HostLost, seconds_left, unheard, unreachable
from toolsvc.fleet.placing import Placer
from toolsvc.fleet.sessions import Placed, SessionTable, no_host
from toolsvc.fleet.starting import Starter
from toolsvc.host.refusals import draining, session_lost
from toolsvc.host.task_blobs import TaskBlobs, Upload
from toolwright import wire
from toolwright.common.v1 import media_pb2, reasons_pb2
from toolwright.rpc.errors import ServiceError, TransportError, answers_errors
from toolwright.rpc.tool_service import blob_pieces
from toolwright.tool.v1 import tool_pb2 as pb
from toolwright.types import BlobRef

_NO_BLOB = reasons_pb2.ERROR_REASON_BLOB_NOT_FOUND


class FrontServicer(Servicer):
    """toolwright.tool.v1.ToolService over a fleet of hosts."""

    def __init__(
        self,
        listed: pb.ListToolsResponse | None,
        sessions: SessionTable[HostLink],
        blobs: TaskBlobs,
        placer: Placer,
        starter: Starter,
    ) -> None:
        """`listed`: what ListTools answers; None = what a host answers."""
        self._listed = listed
        self._sessions = sessions
        self._blobs = blobs
        self._placer = placer
        self._starter = starter

    @answers_errors
    async def ListTools(self, request: pb.ListToolsRequest, context: Any) -> pb.ListToolsResponse:
        if self._listed is not None:
            return self._listed
        for host in self._starter.hosts:
            with contextlib.suppress(HostLost):
                answer: pb.ListToolsResponse = await self._ask(host, "ListTools", request, context)
                return answer
        raise error_of(no_host())

    @answers_errors
    async def OpenSession(
        self, request: pb.OpenSessionRequest, context: Any
    ) -> pb.OpenSessionResponse:
        wish = pb.OpenSessionRequest()
        wish.CopyFrom(request)
        with _service_errors():
            placed = self._placer.place(await converted(open_from_proto, wish))
            response: pb.OpenSessionResponse
            response, queued = await self._open(
                placed, "OpenSession", request, request.blobs, context
            )
        response.queued.CopyFrom(wire.duration(queued))
        response.endpoint = _endpoint(placed)
        if placed.host is None or not self._sessions.shares(placed.host):
            for tool in response.tools:
                cannot_fork(tool)
        return response

    @answers_errors
    async def ForkSession(
        self, request: pb.ForkSessionRequest, context: Any
    ) -> pb.ForkSessionResponse:
        wish = pb.ForkSessionRequest()
        wish.CopyFrom(request)
        with _service_errors():
            placed = self._placer.place_fork(await converted(fork_from_proto, wish))
            answer: pb.ForkSessionResponse
            answer, _ = await self._open(
                placed, "ForkSession", request, request.open.blobs, context
            )
        answer.session.endpoint = _endpoint(placed)
        return answer

    @answers_errors
    async def CallTool(self, request: pb.CallToolRequest, context: Any) -> pb.CallToolResponse:
        answer: pb.CallToolResponse = await self._call("CallTool", request, context)
        return answer

    def begin_call(self, asked: Asked, request: pb.CallToolRequest) -> None:
        """Passes the call on as a CallTool: the calls of one stream belong to many hosts."""
        asked.work(self._answer_call(asked, request))

    @answers_errors
    async def GetSession(
        self, request: pb.GetSessionRequest, context: Any
    ) -> pb.GetSessionResponse:
        with _service_errors():
            placed, host = self._find(request)
            answer: pb.GetSessionResponse = await self._ask_for(
                placed, host, "GetSession", request, context
            )
        answer.endpoint = host.endpoint
        return answer

    @answers_errors
    async def CancelCall(
        self, request: pb.CancelCallRequest, context: Any
    ) -> pb.CancelCallResponse:
        answer: pb.CancelCallResponse = await self._call("CancelCall", request, context)
        return answer

    @answers_errors
    async def RenewLeases(
        self, request: pb.RenewLeasesRequest, context: Any
    ) -> pb.RenewLeasesResponse:
        require(request, "owner")
        seconds_of(request, "lease", DEFAULT_LEASE)
        renewal = pb.RenewLeasesRequest(owner=request.owner)
        if request.HasField("lease"):
            renewal.lease.CopyFrom(request.lease)
        sessions = self._sessions.of(request.owner)
        held = [placed.session_id for placed in sessions if placed.host is None]

        async def renew(host: HostLink) -> Iterable[str]:
            try:
                return (await self._ask(host, "RenewLeases", renewal, context)).held  # type: ignore[no-any-return]
            except HostLost:
                return ()

        # A silent host is an error: its sessions may live, so they must not be called lost.
        hosts = {placed.host for placed in sessions if placed.host is not None}
        for answer in await asyncio.gather(*map(renew, hosts)):
            held += answer
        known = set(held)
        lost = [name for name in request.session_ids if name not in known]
        return pb.RenewLeasesResponse(held=held, lost=lost)

    @answers_errors
    async def CloseSession(
        self, request: pb.CloseSessionRequest, context: Any
    ) -> pb.CloseSessionResponse:
        require(request, "session_id")
        try:
            placed = self._sessions.get(request.session_id)
        except Refused:
            placed = None
        if placed is None:
            return pb.CloseSessionResponse(closed=False)
        closed = True
        if placed.host is not None:
            try:
                answer = await self._ask(placed.host, "CloseSession", request, context)
            except HostLost:
                return pb.CloseSessionResponse(closed=False)
            closed = answer.closed
        if closed or not placed.opening:
            self._sessions.end(placed, "it was closed")
        return pb.CloseSessionResponse(closed=closed)

    async def blob(self, sha256: str, context: Any) -> bytes:
        data = self._blobs.get(sha256)
        if data is not None:
            return data
        return await self._blob_of_a_host(sha256, seconds_left(context))

    def take_in(self, blob: BlobRef) -> Upload:
        if self._placer.draining:
            raise draining()
        return self._blobs.take_in(blob)

    async def _blob_of_a_host(self, sha256: str, seconds: float) -> bytes:
        """Asks all hosts at once, so that a silent host does not delay the others. Raises
        ServiceError if no host has the blob: BLOB_NOT_FOUND, or the failure of a host that could
        not answer."""
        unsaid: ServiceError | None = None
        asking = [
            asyncio.create_task(_blob_at(one, sha256, seconds)) for one in self._starter.hosts
        ]
        try:
            for answer in asyncio.as_completed(asking):
                try:
                    data = await answer
                except ServiceError as error:
                    unsaid = error
                else:
                    if data is not None:
                        return data
        finally:
            for task in asking:
                task.cancel()
            await asyncio.gather(*asking, return_exceptions=True)
        raise unsaid or ServiceError(
            _NO_BLOB,
            f"no blob {sha256} is held here",
            subject=sha256,
            fix="fetch it before its session is closed",
        )

    async def _open(
        self,
        placed: Placed[HostLink],
        method: str,
        request: pb.OpenSessionRequest | pb.ForkSessionRequest,
        blobs: Iterable[media_pb2.BlobRef],
        context: Any,
    ) -> tuple[Any, float]:
        """The host's answer to the request for a session that is placed, and the seconds until it
        had a host."""
        began = time.monotonic()
        placed.opening += 1
        placed.asked += 1
        try:
            host = await self._placer.host_of(placed)
            queued = time.monotonic() - began
            answer = await self._open_at(host, method, request, blobs, context)
            placed.opened = True
        except HostLost as error:
            if placed.opened:
                raise session_lost(placed.session_id, str(error)) from error
            # No client knows it as open yet: another host may open it.
            self._sessions.drop(placed)
            raise unreachable(f"session {placed.session_id} is not open: {error}") from error
        except ServiceError as error:
            # The host holds nothing, and no other request opens it there. `watch` removes a session
            # whose opening got no answer.
            if error.reason == reasons_pb2.ERROR_REASON_SESSION_CLOSED:
                self._sessions.end(placed, "it was closed")
            elif placed.opening == 1 and not placed.opened and not _is_unsure(error):
                self._sessions.drop(placed)
            raise
        finally:
            placed.opening -= 1
        self._sessions.find(placed.session_id)  # It may have been closed meanwhile.
        return answer, queued

    async def _open_at(
        self,
        host: HostLink,
        method: str,
        request: pb.OpenSessionRequest | pb.ForkSessionRequest,
        blobs: Iterable[media_pb2.BlobRef],
        context: Any,
    ) -> Any:
        """Opens the session at the host, after sending the blobs that it misses. Raises
        HostLost."""
        missing = {blob.sha256: blob for blob in blobs}
        while True:
            try:
                answer = await self._ask(host, method, request, context)
            except ServiceError as error:
                data = self._blobs.get(error.subject)
                if error.reason != _NO_BLOB or error.subject not in missing or data is None:
                    raise
                pieces = list(blob_pieces(missing.pop(error.subject), data))
                await self._ask(host, "PutBlob", pieces, context)
            else:
                return answer

    async def _answer_call(self, asked: Asked, request: pb.CallToolRequest) -> None:
        asked.end(await self._call("CallTool", request, asked.context))

    async def _call(
        self, method: str, request: pb.CallToolRequest | pb.CancelCallRequest, context: Any
    ) -> Any:
        """Passes a call to its host, if that has no endpoint of its own."""
        with _service_errors():
            placed, host = self._find(request)
            if host.endpoint:
                raise _held_at(host.endpoint, placed.session_id)
            return await self._ask_for(placed, host, method, request, context)

    def _find(
        self, request: pb.CallToolRequest | pb.CancelCallRequest | pb.GetSessionRequest
    ) -> tuple[Placed[HostLink], HostLink]:
        """A session of this client, and its host. Raises Refused."""
        require(request, "session_id")
        placed = self._sessions.find(request.session_id)
        if placed.host is None or not placed.opened:
            raise Refused(
                Reason.SESSION_NOT_FOUND,
                f"session {request.session_id} is only being opened",
                subject=request.session_id,
                fix="wait for the answer to OpenSession",
            )
        if placed.host.lost:
            raise session_lost(placed.session_id, placed.host.why_lost)
        return placed, placed.host

    async def _ask_for(
        self, placed: Placed[HostLink], host: HostLink, method: str, request: Any, context: Any
    ) -> Any:
        """As `_ask`, but raises Refused with SESSION_LOST if the host is lost."""
        try:
            return await self._ask(host, method, request, context)
        except HostLost as error:
            raise session_lost(placed.session_id, str(error)) from error

    async def _ask(self, host: HostLink, method: str, request: Any, context: Any) -> Any:
        """Within the time of the client's request. ServiceError; HostLost."""
        try:
            return await host.ask(method, request, seconds_left(context))
        except TransportError as error:
            raise unheard(host, error) from error


async def _blob_at(host: HostLink, sha256: str, seconds: float) -> bytes | None:
    """The blob; None if the host does not have it. Raises ServiceError if it does not say."""
    try:
        return await host.blob(sha256, seconds)
    except HostLost:
        return None
    except TransportError as error:
        raise unheard(host, error) from error
    except ServiceError as error:
        if error.reason == _NO_BLOB:
            return None
        raise


@contextlib.contextmanager
def _service_errors() -> Iterator[None]:
    try:
        yield
    except Refused as refusal:
        raise error_of(refusal) from refusal


def _endpoint(placed: Placed[HostLink]) -> str:
    """Endpoint at which the client must call it; "" = here."""
    return "" if placed.host is None else placed.host.endpoint


def _held_at(endpoint: str, session_id: str) -> ServiceError:
    return ServiceError(
        reasons_pb2.ERROR_REASON_WRONG_ENDPOINT,
        f"session {session_id} is held at {endpoint}",
        subject=session_id,
        endpoint=endpoint,
        fix="send it there, as the answer to OpenSession says",
    )


def cannot_fork(tool: pb.ToolDescriptor) -> None:
    """Marks a tool whose sessions have an actor of their own: they cannot be forked."""
    tool.capabilities.fork = tool.capabilities.fork_replays = False


def _is_unsure(error: ServiceError) -> bool:
    """Whether the host may have carried the request out."""
    return isinstance(error.__cause__, TransportError)
