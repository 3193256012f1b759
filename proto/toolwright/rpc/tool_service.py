"""The stub of ToolService, and its blobs in pieces, both ways."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any, cast

import grpc.aio

from toolwright.common.v1 import media_pb2
from toolwright.rpc.errors import from_rpc_error
from toolwright.rpc.options import PIECE_BYTES
from toolwright.tool.v1 import tool_pb2 as pb
from toolwright.tool.v1 import tool_pb2_grpc


def stub_on(channel: grpc.aio.Channel) -> tool_pb2_grpc.ToolServiceAsyncStub:
    """The client of ToolService on a channel."""
    return cast("tool_pb2_grpc.ToolServiceAsyncStub", tool_pb2_grpc.ToolServiceStub(channel))


def blob_pieces(blob: media_pb2.BlobRef, data: bytes) -> Iterator[pb.PutBlobRequest]:
    """The messages of one PutBlob."""
    yield pb.PutBlobRequest(blob=blob)
    for at in range(0, len(data), PIECE_BYTES):
        yield pb.PutBlobRequest(data=data[at : at + PIECE_BYTES])


async def read_blob(
    stub: tool_pb2_grpc.ToolServiceAsyncStub, sha256: str, size: int = sys.maxsize, **terms: Any
) -> bytes:
    """The bytes of a blob. terms: timeout and metadata of the RPC. Raises ServiceError or
    TransportError.

    size: expected number of bytes. A longer blob is cut one byte after it.
    """
    data = bytearray()
    try:
        async for piece in stub.GetBlob(pb.GetBlobRequest(sha256=sha256), **terms):
            data += piece.data[: size + 1 - len(data)]
            if len(data) > size:
                break
    except grpc.aio.AioRpcError as error:
        raise from_rpc_error(error) from error
    return bytes(data)
