"""The gRPC interface of a host: ToolService, method by method.

Turns refusals into the contract's typed errors; `wire` converts messages. Nothing is decided here.
"""

from __future__ import annotations

from typing import Any

from google.protobuf.duration_pb2 import Duration

from toolsvc.edge.call_stream import Asked
from toolsvc.edge.large import converted, is_large
from toolsvc.edge.servicer import Servicer
from toolsvc.edge.wire import (
    DEFAULT_LEASE,
    call_from_proto,
    descriptor_to_proto,
    error_of,
    fill_answer,
    fork_from_proto,
    open_from_proto,
    require,
    seconds_of,
)
from toolsvc.errors import Refused
from toolsvc.host.host import Host
from toolsvc.host.task_blobs import Upload
from toolsvc.types import Opened
from toolwright import wire
from toolwright.rpc.errors import answers_errors
from toolwright.tool.v1 import tool_pb2 as pb
from toolwright.types import BlobRef

SERVICE_NAME = pb.DESCRIPTOR.services_by_name["ToolService"].full_name


class ToolServicer(Servicer):
    """toolwright.tool.v1.ToolService on a `Host`."""

    def __init__(self, host: Host, name: str) -> None:
        """`name`: name and version of the service, for ListTools."""
        self._host = host
        self._name = name

    @answers_errors
    async def ListTools(self, request: pb.ListToolsRequest, context: Any) -> pb.ListToolsResponse:
        tools = map(descriptor_to_proto, self._host.list_tools())
        return pb.ListToolsResponse(tools=tools, service=self._name)

    @answers_errors
    async def OpenSession(
        self, request: pb.OpenSessionRequest, context: Any
    ) -> pb.OpenSessionResponse:
        try:
            opened = await self._host.open(await converted(open_from_proto, request))
        except Refused as refusal:
            raise error_of(refusal) from refusal
        return _opened_to_proto(opened)

    @answers_errors
    async def CallTool(self, request: pb.CallToolRequest, context: Any) -> pb.CallToolResponse:
        try:
            answer = await self._host.call(await converted(call_from_proto, request))
        except Refused as refusal:
            raise error_of(refusal) from refusal
        response = pb.CallToolResponse()
        fill_answer(response, answer)
        return response

    def begin_call(self, asked: Asked, request: pb.CallToolRequest) -> None:
        if is_large(request):
            asked.work(self._begin_large(asked, request))
            return
        call = call_from_proto(request)
        asked.follow(self._host.begin(call), call.wait)

    async def _begin_large(self, asked: Asked, request: pb.CallToolRequest) -> None:
        call = await converted(call_from_proto, request)
        asked.follow(self._host.begin(call), call.wait)

    @answers_errors
    async def GetSession(
        self, request: pb.GetSessionRequest, context: Any
    ) -> pb.GetSessionResponse:
        require(request, "session_id")
        try:
            held = self._host.look(request.session_id, request.fence)
        except Refused as refusal:
            raise error_of(refusal) from refusal
        return pb.GetSessionResponse(
            call_ids=held.call_ids, tools=map(descriptor_to_proto, held.tools), fenced=True
        )

    @answers_errors
    async def ForkSession(
        self, request: pb.ForkSessionRequest, context: Any
    ) -> pb.ForkSessionResponse:
        try:
            opened = await self._host.fork(await converted(fork_from_proto, request))
        except Refused as refusal:
            raise error_of(refusal) from refusal
        return pb.ForkSessionResponse(session=_opened_to_proto(opened))

    @answers_errors
    async def CancelCall(
        self, request: pb.CancelCallRequest, context: Any
    ) -> pb.CancelCallResponse:
        require(request, "session_id")
        require(request, "call_id")
        try:
            cancelled = self._host.cancel(request.session_id, request.call_id, request.fence)
        except Refused as refusal:
            raise error_of(refusal) from refusal
        return pb.CancelCallResponse(cancelled=cancelled)

    @answers_errors
    async def RenewLeases(
        self, request: pb.RenewLeasesRequest, context: Any
    ) -> pb.RenewLeasesResponse:
        require(request, "owner")
        leases = self._host.renew(
            request.owner, seconds_of(request, "lease", DEFAULT_LEASE), request.session_ids
        )
        return pb.RenewLeasesResponse(lost=leases.lost, held=leases.held)

    @answers_errors
    async def CloseSession(
        self, request: pb.CloseSessionRequest, context: Any
    ) -> pb.CloseSessionResponse:
        require(request, "session_id")
        try:
            closed = await self._host.close(request.session_id, fence=request.fence)
        except Refused as refusal:
            raise error_of(refusal) from refusal
        return pb.CloseSessionResponse(closed=closed)

    async def blob(self, sha256: str, context: Any) -> bytes:
        try:
            return self._host.blob(sha256)
        except Refused as refusal:
            raise error_of(refusal) from refusal

    def take_in(self, blob: BlobRef) -> Upload:
        return self._host.take_in(blob)


def _opened_to_proto(opened: Opened) -> pb.OpenSessionResponse:
    return pb.OpenSessionResponse(
        session_id=opened.session_id,
        tools=map(descriptor_to_proto, opened.tools),
        isolation=opened.isolation,
        queued=Duration(),
        startup=wire.duration(opened.startup),
        fenced=True,
    )
