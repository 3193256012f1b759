"""The part of ToolService that does not depend on where sessions are: blobs in pieces, and unserved
methods."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from toolsvc.edge.call_stream import Asked, CallStream
from toolsvc.edge.wire import blob_from_proto, error_of, invalid_field
from toolsvc.errors import Refused
from toolsvc.host.task_blobs import BLOB_BYTES, Upload
from toolwright.common.v1 import media_pb2
from toolwright.rpc.errors import ServiceError, abort, answers_errors, not_served
from toolwright.rpc.options import PIECE_BYTES
from toolwright.tool.v1 import tool_pb2 as pb
from toolwright.tool.v1 import tool_pb2_grpc
from toolwright.types import BlobRef

UPLOAD_SECONDS = 300.0
"""Longest time to receive all pieces of a blob, in seconds; until then they take their room."""
SILENCE_SECONDS = 15.0
"""Longest time to wait for the next piece of a blob, in seconds."""


class Servicer(tool_pb2_grpc.ToolServiceServicer):
    """toolwright.tool.v1.ToolService without its sessions."""

    async def blob(self, sha256: str, context: Any) -> bytes:
        """The bytes that GetBlob sends. Raises ServiceError if the blob is not held."""
        raise NotImplementedError

    def take_in(self, blob: BlobRef) -> Upload:
        """The upload that PutBlob fills. Raises Refused if the blob cannot be held."""
        raise NotImplementedError

    def begin_call(self, asked: Asked, request: pb.CallToolRequest) -> None:
        """Begins what CallTool would do with the request, which it may change; the outcome goes to
        `asked`. Raises ServiceError or Refused if the call cannot begin."""
        raise NotImplementedError

    # Generated types know generators alone; gRPC takes a coroutine that reads and writes too.
    async def StreamCalls(  # type: ignore[override]
        self, request_iterator: AsyncIterator[pb.StreamCallsRequest], context: Any
    ) -> None:
        await CallStream(self.begin_call, context).serve()

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
            raise invalid_field(
                "data",
                f"the blob took more than {UPLOAD_SECONDS:g} s, or one of its pieces more than "
                f"{SILENCE_SECONDS:g} s",
                "send its pieces one after the other",
            ) from None
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
            while unread > 0 and (piece := await _next(pieces)) is not None:
                unread -= max(1024, len(piece.data))
            raise

    async def _upload(self, pieces: AsyncIterator[pb.PutBlobRequest]) -> BlobRef:
        first = await _next(pieces)
        if first is None or not first.HasField("blob"):
            raise invalid_field("blob", "the first message of PutBlob does not name the blob")
        with self.take_in(blob_from_proto(first.blob)) as upload:
            await upload.add(first.data)
            while (piece := await _next(pieces)) is not None:
                if piece.HasField("blob"):
                    raise invalid_field("blob", "a later message of PutBlob names a blob once more")
                await upload.add(piece.data)
            return await upload.finish()


async def _next(pieces: AsyncIterator[pb.PutBlobRequest]) -> pb.PutBlobRequest | None:
    """The next piece; None after the last. Raises TimeoutError if it does not come in time."""
    async with asyncio.timeout(SILENCE_SECONDS):
        return await anext(pieces, None)
