"""The host spoken to over gRPC: ToolService, method by method.

Turns refusals into the contract's typed errors; what messages say is `toolsvc.wire`'s. Nothing is
decided here.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from google.protobuf.duration_pb2 import Duration

from toolsvc.errors import Refused
from toolsvc.host import Host
from toolsvc.task_blobs import BLOB_BYTES, PIECE_BYTES
from toolsvc.types import Running
from toolsvc.wire import (
    DEFAULT_LEASE,
    blob_from_proto,
    call_from_proto,
    descriptor_to_proto,
    error_of,
    fill_result,
    invalid_field,
    open_from_proto,
    require,
    seconds_of,
    set_seconds,
)
from toolwright import wire
from toolwright.common.v1 import media_pb2
from toolwright.rpc.errors import ServiceError, abort, answers_errors, not_served
from toolwright.tool.v1 import tool_pb2 as pb
from toolwright.tool.v1 import tool_pb2_grpc
from toolwright.types import BlobRef

SERVICE_NAME = pb.DESCRIPTOR.services_by_name["ToolService"].full_name
UPLOAD_SECONDS = 300.0
"""For all pieces of one blob to come in; until then they take their room."""


class ToolServicer(tool_pb2_grpc.ToolServiceServicer):
    """toolwright.tool.v1.ToolService on a `Host`."""

    def __init__(self, host: Host, name: str) -> None:
        """`name`: of the service and its version, for ListTools."""
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
            opened = await self._host.open(open_from_proto(request))
        except Refused as refusal:
            raise error_of(refusal) from refusal
        return pb.OpenSessionResponse(
            session_id=opened.session_id,
            tools=map(descriptor_to_proto, opened.tools),
            isolation=opened.isolation,
            queued=Duration(),
            startup=wire.duration(opened.startup),
        )

    @answers_errors
    async def CallTool(self, request: pb.CallToolRequest, context: Any) -> pb.CallToolResponse:
        try:
            answer = await self._host.call(call_from_proto(request))
        except Refused as refusal:
            raise error_of(refusal) from refusal
        response = pb.CallToolResponse()
        if isinstance(answer, Running):
            set_seconds(response.running.queued, answer.queued)
            set_seconds(response.running.run, answer.run)
            response.running.SetInParent()
        else:
            fill_result(response.result, answer)
        return response

    @answers_errors
    async def CancelCall(
        self, request: pb.CancelCallRequest, context: Any
    ) -> pb.CancelCallResponse:
        require(request, "session_id")
        require(request, "call_id")
        try:
            cancelled = self._host.cancel(request.session_id, request.call_id)
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
        return pb.CloseSessionResponse(closed=await self._host.close(request.session_id))

    @answers_errors
    async def SnapshotSession(
        self, request: pb.SnapshotSessionRequest, context: Any
    ) -> pb.SnapshotSessionResponse:
        raise not_served("SnapshotSession")

    @answers_errors
    async def RestoreSession(
        self, request: pb.RestoreSessionRequest, context: Any
    ) -> pb.RestoreSessionResponse:
        raise not_served("RestoreSession")

    @answers_errors
    async def ForkSession(
        self, request: pb.ForkSessionRequest, context: Any
    ) -> pb.ForkSessionResponse:
        raise not_served("ForkSession")

    async def GetBlob(
        self, request: pb.GetBlobRequest, context: Any
    ) -> AsyncIterator[pb.GetBlobResponse]:
        try:
            data = await self.blob(request.sha256, context)
        except ServiceError as error:
            await abort(context, error)
        for at in range(request.offset, len(data), PIECE_BYTES):
            yield pb.GetBlobResponse(data=data[at : at + PIECE_BYTES])

    async def blob(self, sha256: str, context: Any) -> bytes:
        """What GetBlob sends. ServiceError where it is not held."""
        try:
            return self._host.blob(sha256)
        except Refused as refusal:
            raise error_of(refusal) from refusal

    @answers_errors
    async def PutBlob(
        self, request: AsyncIterator[pb.PutBlobRequest], context: Any
    ) -> pb.PutBlobResponse:
        try:
            async with asyncio.timeout(UPLOAD_SECONDS):
                stored = await self._take_in(request)
        except Refused as refusal:
            raise error_of(refusal) from refusal
        except TimeoutError:
            raise invalid_field("data", f"the blob took more than {UPLOAD_SECONDS:g} s") from None
        return pb.PutBlobResponse(
            blob=media_pb2.BlobRef(
                sha256=stored.sha256, media_type=stored.media_type, size=stored.size
            )
        )

    async def _take_in(self, pieces: AsyncIterator[pb.PutBlobRequest]) -> BlobRef:
        try:
            return await self._upload(pieces)
        except (Refused, ServiceError):
            # An answer before the last piece would look to the client like a cut stream.
            unread = BLOB_BYTES
            while unread > 0 and (piece := await anext(pieces, None)) is not None:
                unread -= max(1024, len(piece.data))
            raise

    async def _upload(self, pieces: AsyncIterator[pb.PutBlobRequest]) -> BlobRef:
        first = await anext(pieces, None)
        if first is None or not first.HasField("blob"):
            raise invalid_field("blob", "the first message of PutBlob does not name the blob")
        with self._host.take_in(blob_from_proto(first.blob)) as upload:
            await upload.add(first.data)
            async for piece in pieces:
                if piece.HasField("blob"):
                    raise invalid_field("blob", "a later message of PutBlob names a blob once more")
                await upload.add(piece.data)
            return await upload.finish()
