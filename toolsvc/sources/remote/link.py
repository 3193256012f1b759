"""The channels to another tool service: requests with retries, media, and conversion of its
refusals."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import grpc.aio

from toolsvc.errors import Refused, backend_down
from toolsvc.host.blobs import SESSION_BYTES
from toolsvc.sources.remote.wire import refusal_from
from toolwright.rpc.channel import backoff, call, may_retry, open_channel
from toolwright.rpc.errors import ServiceError, TransportError
from toolwright.rpc.tool_service import read_blob, stub_on
from toolwright.tool.v1 import tool_pb2_grpc
from toolwright.types import BlobRef

OPEN_SECONDS = 60.0
_TRIES = 4


class ServiceLink:
    """Made on the event loop that it will be used on."""

    def __init__(self, address: str, token: str, authority: bytes | None) -> None:
        """authority: see `toolwright.rpc.channel.open_channel`."""
        self.address = address
        self._how = (token, authority)
        self._channels: dict[str, grpc.aio.Channel] = {}

    async def close(self) -> None:
        """Closes every channel. Idempotent."""
        while self._channels:
            await self._channels.popitem()[1].close()

    def stub(self, address: str) -> tool_pb2_grpc.ToolServiceAsyncStub:
        if address not in self._channels:
            self._channels[address] = open_channel(address, *self._how)
        return stub_on(self._channels[address])

    async def ask(
        self, method: Callable[[], Callable[..., Any]], request: Any, *, timeout: float
    ) -> Any:
        """Retries if nothing ran or the answer was lost; every request here may be repeated. Raises
        the last ServiceError or TransportError. `method` is looked up anew for every try."""
        for attempt in range(_TRIES):
            try:
                return await call(method(), request, timeout=timeout)
            except (ServiceError, TransportError) as error:
                if attempt == _TRIES - 1 or not may_retry(error):
                    raise
                await asyncio.sleep(backoff(attempt, error))
        raise AssertionError("unreachable")

    async def blob(self, endpoint: str, reference: BlobRef) -> bytes:
        """Bytes of the blob. Raises Refused if they cannot be fetched."""
        if reference.size > SESSION_BYTES:
            raise backend_down(f"{self.address} has media of {reference.size} bytes")
        stub = self.stub(endpoint)
        try:
            data = await read_blob(stub, reference.sha256, reference.size, timeout=OPEN_SECONDS)
        except (ServiceError, TransportError) as error:
            raise backend_down(f"{self.address} lost media {reference.sha256}: {error}") from error
        if len(data) != reference.size:
            raise backend_down(f"{self.address} sent another size of media than it named")
        return data

    def refusal(self, error: ServiceError | TransportError) -> Refused:
        return refusal_from(error, self.address)
