"""A blob of a result, from whichever host holds it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from toolsvc.fleet.link import HostLink, HostLost, unheard
from toolwright.common.v1 import reasons_pb2
from toolwright.rpc.errors import ServiceError, TransportError

_NO_BLOB = reasons_pb2.ERROR_REASON_BLOB_NOT_FOUND


async def blob_of(hosts: Sequence[HostLink], sha256: str, seconds: float) -> bytes:
    """Asks all at once: a silent one keeps no other's blob back. ServiceError where none has it:
    BLOB_NOT_FOUND, or what kept one of them from saying so."""
    unsaid: ServiceError | None = None
    asking = [asyncio.create_task(_blob_at(host, sha256, seconds)) for host in hosts]
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


async def _blob_at(host: HostLink, sha256: str, seconds: float) -> bytes | None:
    """None where it is not."""
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
