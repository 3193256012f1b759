"""ToolService at a worker's own endpoint.

A request about a session of the worker is answered here, except for a fork. The worker passes all
other requests on to the front, on the client's behalf: the front alone knows where every session
is, and places new ones and forks. It refuses a call of a session that is elsewhere, and names the
place.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import grpc.aio

from toolsvc.edge.call_stream import Asked
from toolsvc.edge.service import ToolServicer
from toolsvc.fleet.link import seconds_left, unreachable
from toolsvc.host.host import Host
from toolwright.common.v1 import reasons_pb2
from toolwright.rpc.auth import on_behalf
from toolwright.rpc.channel import open_channel
from toolwright.rpc.errors import ServiceError, TransportError, answers_errors, from_rpc_error
from toolwright.rpc.tool_service import read_blob
from toolwright.tool.v1 import tool_pb2 as pb
from toolwright.tool.v1 import tool_pb2_grpc


class FrontLink:
    """The way back to the front, for the `caller` of each request. Async context manager."""

    def __init__(self, address: str, token: str) -> None:
        self._token = token
        self._channel = open_channel(address)
        self._stub: Any = tool_pb2_grpc.ToolServiceStub(self._channel)

    async def __aenter__(self) -> FrontLink:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._channel.close()

    async def ask(self, method: str, request: Any, context: Any) -> Any:
        """One RPC of ToolService within the client's deadline. Raises ServiceError from the front,
        or BACKEND_DOWN if the front does not answer."""
        try:
            return await getattr(self._stub, method)(request, **self._terms(context))
        except grpc.aio.AioRpcError as error:
            raise _said(from_rpc_error(error)) from error

    async def blob(self, sha256: str, context: Any) -> bytes:
        """Raises as `ask` does."""
        try:
            return await read_blob(self._stub, sha256, **self._terms(context))
        except (ServiceError, TransportError) as error:
            raise _said(error) from error

    def _terms(self, context: Any) -> dict[str, Any]:
        return {
            "metadata": (("authorization", on_behalf(self._token)),),
            "timeout": seconds_left(context),
        }


def _asked_of_the_front(method: str) -> Any:
    """A method that the front answers."""

    @answers_errors
    async def answer(self: EndpointServicer, request: Any, context: Any) -> Any:
        return await self.front.ask(method, request, context)

    return answer


def _here_or_there(method: str) -> Any:
    """A method that the worker answers for its own sessions, and the front for all others."""
    here, there = getattr(ToolServicer, method), _asked_of_the_front(method)

    async def answer(self: EndpointServicer, request: Any, context: Any) -> Any:
        serve = here if self.is_here(request.session_id) else there
        return await serve(self, request, context)

    return answer


class EndpointServicer(ToolServicer):
    """toolwright.tool.v1.ToolService on the `Host` of one worker."""

    def __init__(
        self, host: Host, name: str, front: FrontLink, closed: Callable[[str], None]
    ) -> None:
        """`closed`: reports a session that was closed here to the front, before the client gets the
        answer."""
        super().__init__(host, name)
        self.front = front
        self._tell_closed = closed

    OpenSession = _asked_of_the_front("OpenSession")
    ForkSession = _asked_of_the_front("ForkSession")
    RenewLeases = _asked_of_the_front("RenewLeases")
    PutBlob = _asked_of_the_front("PutBlob")
    CallTool = _here_or_there("CallTool")
    CancelCall = _here_or_there("CancelCall")
    GetSession = _here_or_there("GetSession")
    _close = _here_or_there("CloseSession")

    def begin_call(self, asked: Asked, request: pb.CallToolRequest) -> None:
        if self.is_here(request.session_id):
            super().begin_call(asked, request)
        else:
            asked.work(self._begin_there(asked, request))

    async def CloseSession(
        self, request: pb.CloseSessionRequest, context: Any
    ) -> pb.CloseSessionResponse:
        here = self.is_here(request.session_id)
        answer: pb.CloseSessionResponse = await self._close(request, context)
        if here and answer.closed:
            self._tell_closed(request.session_id)
        return answer

    async def blob(self, sha256: str, context: Any) -> bytes:
        try:
            return await super().blob(sha256, context)
        except ServiceError as error:
            if error.reason != reasons_pb2.ERROR_REASON_BLOB_NOT_FOUND:
                raise
        return await self.front.blob(sha256, context)

    async def _begin_there(self, asked: Asked, request: pb.CallToolRequest) -> None:
        asked.end(await self.front.ask("CallTool", request, asked.context))

    def is_here(self, session_id: str) -> bool:
        """Whether the worker holds it. Without an id the worker refuses the request itself."""
        return not session_id or self._host.knows(session_id)


def _said(error: ServiceError | TransportError) -> ServiceError:
    if isinstance(error, TransportError):
        return unreachable(f"the front does not answer: {error}")
    return error
