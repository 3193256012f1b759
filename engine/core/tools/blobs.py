"""Media of an observation, fetched from the tool service that holds them."""

from __future__ import annotations

import asyncio
import hashlib

import grpc.aio

from engine.core.images.media import Media
from engine.core.tools.link.retry_policy import RetryPolicy
from engine.core.tools.sessions.session import ServiceSession
from engine.errors import ToolServiceFailed
from toolwright.rpc.errors import ServiceError, TransportError, from_rpc_error
from toolwright.tool.v1 import tool_pb2 as pb
from toolwright.types import BlobRef

FETCH_SECONDS = 60.0


async def fetch(session: ServiceSession, blob: BlobRef) -> Media:
    """Media of an observation that were too large to come with it.

    Raises ToolServiceFailed if the session's service no longer has them or sends other bytes: then
    the policy must not see the observation. Keeps at most `blob.size` bytes.
    """
    data = await _read_with_retries(session, blob)
    # In a thread: hashing so many bytes would delay every other trajectory.
    digest = await asyncio.to_thread(lambda: hashlib.sha256(data).hexdigest())
    if digest != blob.sha256:
        raise ToolServiceFailed(f"tools.{session.name}: blob {blob.sha256} came with other bytes")
    return Media(blob=blob, data=data)


async def _read_with_retries(session: ServiceSession, blob: BlobRef) -> bytes:
    retry_policy = RetryPolicy(session.table.patience_s)
    while True:
        try:
            return await _read(session, blob)
        except (ServiceError, TransportError) as error:
            now = asyncio.get_running_loop().time()
            pause = retry_policy.after_failure(error, now, session.link.counts)
            if pause is None:
                raise ToolServiceFailed(f"tools.{session.name}: {error}") from error
            await asyncio.sleep(pause)


async def _read(session: ServiceSession, blob: BlobRef) -> bytes:
    """Reads one byte more than expected, to detect a longer blob."""
    data = bytearray()
    request = pb.GetBlobRequest(sha256=blob.sha256)
    try:
        async for piece in session.endpoint.stub.GetBlob(request, timeout=FETCH_SECONDS):
            data += piece.data[: blob.size + 1 - len(data)]
    except grpc.aio.AioRpcError as error:
        raise from_rpc_error(error) from error
    return bytes(data)
