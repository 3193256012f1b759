"""Channels to a service and its endpoints. An RPC ends with an answer or a `Refusal`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import grpc
import grpc.aio

from toolwright.rpc.channel import open_channel
from toolwright.rpc.errors import ServiceError, from_rpc_error
from toolwright.rpc.tls import Certificate
from toolwright.rpc.tool_service import stub_on
from toolwright.tool.v1 import tool_pb2_grpc

Answer = TypeVar("Answer")

ANSWER_SECONDS = 20.0
"""Default deadline of an RPC, in seconds."""


@dataclass(kw_only=True, eq=False)  # not frozen: Python writes the traceback into it
class Refusal(Exception):
    """An RPC that ended in an error. `reason` is the contract's word, or "" without a reason."""

    method: str
    code: grpc.StatusCode
    message: str
    reason: str = ""
    subject: str = ""
    endpoint: str = ""
    retry_after: float | None = None

    def __str__(self) -> str:
        return f"{self.method} ended in {self.code.name} {self.reason or '(no reason)'}"

    @classmethod
    def of(cls, method: str, error: grpc.aio.AioRpcError) -> Refusal:
        decoded = from_rpc_error(error)
        code, message = error.code(), error.details() or ""
        if not isinstance(decoded, ServiceError):
            return cls(method=method, code=code, message=message)
        return cls(
            method=method,
            code=code,
            message=message,
            reason=decoded.reason_name,
            subject=decoded.subject,
            endpoint=decoded.endpoint,
            retry_after=decoded.retry_after,
        )


async def ask(
    method: Callable[..., Awaitable[Answer]], request: Any, *, seconds: float = ANSWER_SECONDS
) -> Answer:
    """One unary RPC. Raises Refusal if it fails."""
    try:
        return await method(request, timeout=seconds)
    except grpc.aio.AioRpcError as error:
        name = type(request).__name__.removesuffix("Request")
        raise Refusal.of(name, error) from error


class Connection:
    """One channel for each endpoint, opened at its first use."""

    def __init__(
        self,
        address: str,
        token: str = "",
        authority: bytes | None = None,
        identity: Certificate | None = None,
    ) -> None:
        """The arguments of `toolwright.rpc.channel.open_channel`."""
        self.address = address
        self._how = (token, authority, identity)
        self._channels: dict[str, grpc.aio.Channel] = {}

    def channel(self, endpoint: str = "") -> grpc.aio.Channel:
        """The shared channel to an endpoint; "" is the address."""
        where = endpoint or self.address
        if where not in self._channels:
            self._channels[where] = self.another_channel(where)
        return self._channels[where]

    def another_channel(self, endpoint: str = "") -> grpc.aio.Channel:
        """A new channel, which the caller closes."""
        return open_channel(endpoint or self.address, *self._how)

    def stub(self, endpoint: str = "") -> tool_pb2_grpc.ToolServiceAsyncStub:
        return stub_on(self.channel(endpoint))

    async def close(self) -> None:
        for channel in self._channels.values():
            await channel.close()
