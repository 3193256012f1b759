"""Blobs between the engine and tool services: a task's go there, an observation's come back."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Iterator

import grpc.aio

from engine.errors import ToolServiceFailed
from engine.images.media import Media
from engine.tools.calls import Place
from toolwright import wire
from toolwright.rpc.channel import backoff, may_retry
from toolwright.rpc.errors import ServiceError, TransportError, from_rpc_error
from toolwright.rpc.options import PIECE_BYTES
from toolwright.tool.v1 import tool_pb2 as pb
from toolwright.types import BlobRef

FETCH_SECONDS = 60.0


def pieces(media: Media) -> Iterator[pb.PutBlobRequest]:
    """The messages of one PutBlob."""
    yield pb.PutBlobRequest(blob=wire.blob_to_proto(media.blob))
    for at in range(0, len(media.data), PIECE_BYTES):
        yield pb.PutBlobRequest(data=media.data[at : at + PIECE_BYTES])


async def fetch(place: Place, blob: BlobRef) -> Media:
    """Media of an observation that were too large to come with it.

    ToolServiceFailed when the session's service does not have them any more, or sends other bytes:
    then the policy must not see the observation. No more than `blob.size` bytes are kept.
    """
    for attempt in range(place.table.max_retries + 1):
        try:
            data = await _read(place, blob)
            break
        except (ServiceError, TransportError) as error:
            if attempt == place.table.max_retries or not may_retry(error):
                raise ToolServiceFailed(f"tools.{place.name}: {error}") from error
            await asyncio.sleep(backoff(attempt, error))
    # In a thread: a hash of so many bytes would hold up every other trajectory.
    digest = await asyncio.to_thread(lambda: hashlib.sha256(data).hexdigest())
    if digest != blob.sha256:
        raise ToolServiceFailed(f"tools.{place.name}: blob {blob.sha256} came with other bytes")
    return Media(blob=blob, data=data)


async def _read(place: Place, blob: BlobRef) -> bytes:
    """One byte too many tells of more."""
    data = bytearray()
    request = pb.GetBlobRequest(sha256=blob.sha256)
    try:
        async for piece in place.stub.GetBlob(request, timeout=FETCH_SECONDS):
            data += piece.data[: blob.size + 1 - len(data)]
    except grpc.aio.AioRpcError as error:
        raise from_rpc_error(error) from error
    return bytes(data)
