"""Channels to other processes, and unary calls that raise the shared error vocabulary."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import grpc
import grpc.aio

from toolwright.process.backoff import Backoff
from toolwright.rpc import options
from toolwright.rpc.errors import ServiceError, TransportError, from_rpc_error
from toolwright.rpc.tls import Certificate

Answer = TypeVar("Answer")

SHORTEST_PAUSE, LONGEST_PAUSE = 0.01, 30.0
"""Bounds of the seconds before a retry, also if a service names others."""


def open_channel(
    address: str,
    token: str = "",
    authority: bytes | None = None,
    identity: Certificate | None = None,
    *,
    expected: str = "",
) -> grpc.aio.Channel:
    """A channel to "host:port" or "unix:/path"; a bearer token goes with every call.

    authority: PEM certificates of the authority that must have signed the server's; None = no TLS.
    A Unix socket has no TLS. identity: the certificate that this client shows. expected: the name
    in the server's certificate; "" = the host of the address.
    """
    chosen = options.channel_options(address)
    interceptors: Any = [kind(token) for kind in _BEARERS] if token else None
    if authority is None or options.is_unix(address):
        return grpc.aio.insecure_channel(address, options=chosen, interceptors=interceptors)
    named = (("grpc.ssl_target_name_override", expected),) if expected else ()
    shown = (None, None) if identity is None else (identity.key, identity.chain)
    return grpc.aio.secure_channel(
        address,
        grpc.ssl_channel_credentials(authority, *shown),
        options=(*chosen, *named),
        interceptors=interceptors,
    )


async def call(method: Callable[..., Awaitable[Answer]], request: Any, *, timeout: float) -> Answer:
    """One unary RPC with a deadline in seconds. Raises ServiceError or TransportError."""
    try:
        return await method(request, timeout=timeout)
    except grpc.aio.AioRpcError as error:
        raise from_rpc_error(error) from error


_BACKOFF = Backoff(0.05, 5.0)
_NO_ANSWER = (
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.DEADLINE_EXCEEDED,
    grpc.StatusCode.CANCELLED,  # by the server, which stops; our own raises CancelledError
)


def may_retry(error: ServiceError | TransportError) -> bool:
    """Whether the same request may be sent again: no answer came, or the answer says that the
    error passes (`ServiceError.passes`)."""
    if isinstance(error, ServiceError):
        return error.passes
    return error.code in _NO_ANSWER


def backoff(attempt: int, error: ServiceError | TransportError | None = None) -> float:
    """Seconds before retry number `attempt`, from 0. The service's `retry_after` counts, within
    `SHORTEST_PAUSE` and `LONGEST_PAUSE`; without it the pause doubles up to 5 s."""
    if isinstance(error, ServiceError) and error.retry_after is not None:
        return min(LONGEST_PAUSE, max(SHORTEST_PAUSE, error.retry_after))
    return _BACKOFF.pause(attempt)


class _Bearer:
    def __init__(self, token: str) -> None:
        self._metadata = (("authorization", f"Bearer {token}"),)

    async def _send(self, continuation: Any, details: Any, request: Any) -> Any:
        metadata = grpc.aio.Metadata(*(details.metadata or ()), *self._metadata)
        return await continuation(details._replace(metadata=metadata), request)


class _UnaryUnary(_Bearer, grpc.aio.UnaryUnaryClientInterceptor):  # type: ignore[misc]
    async def intercept_unary_unary(self, continuation: Any, details: Any, request: Any) -> Any:
        return await self._send(continuation, details, request)


class _UnaryStream(_Bearer, grpc.aio.UnaryStreamClientInterceptor):  # type: ignore[misc]
    async def intercept_unary_stream(self, continuation: Any, details: Any, request: Any) -> Any:
        return await self._send(continuation, details, request)


class _StreamUnary(_Bearer, grpc.aio.StreamUnaryClientInterceptor):  # type: ignore[misc]
    async def intercept_stream_unary(self, continuation: Any, details: Any, requests: Any) -> Any:
        return await self._send(continuation, details, requests)


class _StreamStream(_Bearer, grpc.aio.StreamStreamClientInterceptor):  # type: ignore[misc]
    async def intercept_stream_stream(self, continuation: Any, details: Any, requests: Any) -> Any:
        return await self._send(continuation, details, requests)


# gRPC files an interceptor under the first kind that it is: one class for all kinds would serve
# unary calls alone.
_BEARERS = (_UnaryUnary, _UnaryStream, _StreamUnary, _StreamStream)
