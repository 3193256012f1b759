"""Media of an observation, fetched from the tool service that holds them."""

from __future__ import annotations

import asyncio
import hashlib

from engine.core.images.media import Media
from engine.core.time_limit import loop_now
from engine.core.tools.link.retry_policy import RetryPolicy
from engine.core.tools.sessions.session import ServiceSession
from engine.errors import ToolServiceFailed
from toolwright.rpc.errors import ServiceError, TransportError
from toolwright.rpc.tool_service import read_blob
from toolwright.types import BlobRef

FETCH_SECONDS = 60.0


async def fetch(session: ServiceSession, blob: BlobRef) -> Media:
    """Media of an observation that were too large to come with it.

    Raises ToolServiceFailed if the session's service no longer has them or sends other bytes: then
    the policy must not see the observation.
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
            return await read_blob(
                session.endpoint.stub, blob.sha256, blob.size, timeout=FETCH_SECONDS
            )
        except (ServiceError, TransportError) as error:
            now = loop_now()
            pause = retry_policy.after_failure(error, now, session.link.counts)
            if pause is None:
                raise ToolServiceFailed(f"tools.{session.name}: {error}") from error
            await asyncio.sleep(pause)
