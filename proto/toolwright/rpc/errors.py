"""One vocabulary for what goes wrong between processes.

A service raises `ServiceError`. It travels as google.rpc.Status with ErrorDetail, and with
RetryInfo if a retry may help. The client gets the same `ServiceError`. Any other error of a service
becomes INTERNAL, and any other failure of an RPC becomes `TransportError`.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from datetime import timedelta
from functools import wraps
from typing import Any, NoReturn, TypeVar
from urllib.parse import unquote

import grpc
import structlog
from google.protobuf import any_pb2, duration_pb2
from google.protobuf.message import DecodeError
from google.rpc import error_details_pb2, status_pb2
from grpc_status import rpc_status

from toolwright import wire
from toolwright.common.v1 import reasons_pb2 as reasons
from toolwright.rpc.options import TOKEN_VARIABLE
from toolwright.rpc.proxies import grpc_hint

Code = grpc.StatusCode

_CODES: dict[int, grpc.StatusCode] = {
    reasons.ERROR_REASON_INVALID_REQUEST: Code.INVALID_ARGUMENT,
    reasons.ERROR_REASON_SESSION_NOT_FOUND: Code.NOT_FOUND,
    reasons.ERROR_REASON_SESSION_LOST: Code.FAILED_PRECONDITION,
    reasons.ERROR_REASON_SESSION_CLOSED: Code.FAILED_PRECONDITION,
    reasons.ERROR_REASON_WRONG_ENDPOINT: Code.FAILED_PRECONDITION,
    reasons.ERROR_REASON_CALL_ID_REUSED: Code.FAILED_PRECONDITION,
    reasons.ERROR_REASON_RESULT_FORGOTTEN: Code.FAILED_PRECONDITION,
    reasons.ERROR_REASON_QUEUE_LIMIT: Code.RESOURCE_EXHAUSTED,
    reasons.ERROR_REASON_TOO_MANY_SESSIONS: Code.RESOURCE_EXHAUSTED,
    reasons.ERROR_REASON_DRAINING: Code.UNAVAILABLE,
    reasons.ERROR_REASON_BACKEND_DOWN: Code.UNAVAILABLE,
    reasons.ERROR_REASON_UNKNOWN_TOOL: Code.NOT_FOUND,
    reasons.ERROR_REASON_BLOB_NOT_FOUND: Code.NOT_FOUND,
    reasons.ERROR_REASON_NOT_SERVED: Code.UNIMPLEMENTED,
    reasons.ERROR_REASON_WRONG_LINEAGE: Code.FAILED_PRECONDITION,
    reasons.ERROR_REASON_WRONG_VERSION: Code.FAILED_PRECONDITION,
    reasons.ERROR_REASON_PUBLISH_FAILED: Code.FAILED_PRECONDITION,
    reasons.ERROR_REASON_DISK_FULL: Code.RESOURCE_EXHAUSTED,
    reasons.ERROR_REASON_UNKNOWN_SEQUENCE: Code.FAILED_PRECONDITION,
    reasons.ERROR_REASON_SESSION_BUSY: Code.FAILED_PRECONDITION,
    reasons.ERROR_REASON_NOT_OWNER: Code.PERMISSION_DENIED,
    reasons.ERROR_REASON_INTERNAL: Code.INTERNAL,
    reasons.ERROR_REASON_SUPERSEDED: Code.FAILED_PRECONDITION,
    reasons.ERROR_REASON_CONTEXT_FULL: Code.INVALID_ARGUMENT,
    reasons.ERROR_REASON_TOO_MANY_CALLS: Code.RESOURCE_EXHAUSTED,
    reasons.ERROR_REASON_TRAJECTORY_FULL: Code.FAILED_PRECONDITION,
    reasons.ERROR_REASON_RESPONSE_NOT_FOUND: Code.NOT_FOUND,
    reasons.ERROR_REASON_OTHER_TOKENIZER: Code.FAILED_PRECONDITION,
    reasons.ERROR_REASON_FENCED: Code.FAILED_PRECONDITION,
}


class ServiceError(Exception):
    """A service refused a request or failed, for a reason of the contract.

    reason: an ErrorReason number. fix: one sentence, or "". retry_after: seconds after which a
    retry may help; None = it cannot.
    """

    def __init__(
        self,
        reason: int,
        message: str,
        *,
        subject: str = "",
        endpoint: str = "",
        fix: str = "",
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message
        self.subject = subject
        self.endpoint = endpoint
        self.fix = fix
        self.retry_after = retry_after

    @property
    def code(self) -> grpc.StatusCode:
        return _CODES.get(self.reason, Code.INTERNAL)

    @property
    def passes(self) -> bool:
        """Whether the same request may be sent again: the service says when, or shuts down.
        RESOURCE_EXHAUSTED alone does not count: gRPC uses it for oversized messages too."""
        return self.retry_after is not None or self.reason == reasons.ERROR_REASON_DRAINING

    @property
    def reason_name(self) -> str:
        """Name such as "QUEUE_LIMIT"; a reason of a newer contract is shown as its number."""
        if self.reason not in reasons.ErrorReason.values():
            return f"REASON_{self.reason}"
        return reasons.ErrorReason.Name(self.reason).removeprefix("ERROR_REASON_")  # type: ignore[arg-type]

    def __str__(self) -> str:
        return f"{self.reason_name}: {self.message}" + (f" ({self.fix})" if self.fix else "")


class ListenError(Exception):
    """A server cannot listen, or its tokens cannot be read. The message names the address or the
    file, and the fix."""


class TransportError(Exception):
    """The RPC failed without an answer of the service: connection, deadline, protocol."""

    def __init__(self, code: grpc.StatusCode, message: str) -> None:
        super().__init__(f"{code.name}: {message}")
        self.code = code


def not_served(method: str) -> ServiceError:
    """The error for a method of the contract that this server does not serve."""
    return ServiceError(
        reasons.ERROR_REASON_NOT_SERVED, f"{method} is not served here", subject=method
    )


def internal(error: Exception) -> ServiceError:
    """The error for a fault of the service itself."""
    return ServiceError(reasons.ERROR_REASON_INTERNAL, f"{type(error).__name__}: {error}")


_MESSAGE_BYTES, _DETAIL_BYTES = 1024, 512
"""A status travels in trailers, of 8 KiB by default. A byte that is not ASCII takes three there. A
longer status would arrive without its reason."""


def _cut(text: str, most: int) -> str:
    """The text's beginning, in at most `most` bytes of UTF-8."""
    data = text.encode("utf-8", "replace")
    if len(data) <= most:
        return data.decode()
    return data[: most - 3].decode("utf-8", "ignore") + "…"


def detail_of(error: ServiceError) -> reasons.ErrorDetail:
    """The fields of the error besides its code and its message."""
    return reasons.ErrorDetail(
        reason=error.reason,  # type: ignore[arg-type]
        subject=_cut(error.subject, _DETAIL_BYTES),
        endpoint=_cut(error.endpoint, _DETAIL_BYTES),
        mend=_cut(error.fix, _DETAIL_BYTES),
    )


def to_status(error: ServiceError) -> status_pb2.Status:
    """google.rpc.Status with ErrorDetail, and RetryInfo where the error has a delay; cut to what
    arrives."""
    packed = [any_pb2.Any()]
    packed[0].Pack(detail_of(error))
    if error.retry_after is not None:
        delay = duration_pb2.Duration()
        delay.FromTimedelta(timedelta(seconds=error.retry_after))
        info = any_pb2.Any()
        info.Pack(error_details_pb2.RetryInfo(retry_delay=delay))
        packed.append(info)
    message = _cut(error.message, _MESSAGE_BYTES)
    return status_pb2.Status(code=error.code.value[0], message=message, details=packed)


def from_rpc_error(error: grpc.aio.AioRpcError) -> ServiceError | TransportError:
    """The service's error, or a TransportError if the answer cannot be read."""
    try:
        found = _service_error(error)
    except DecodeError:
        found = None
    details = readable(error.details() or "no details")
    if error.code() is Code.UNAVAILABLE:
        details += grpc_hint(details)
    if error.code() is Code.UNAUTHENTICATED:
        details += f"; give this process the {TOKEN_VARIABLE} that the server was started with"
    return found or TransportError(error.code(), details)


def _service_error(error: grpc.aio.AioRpcError) -> ServiceError | None:
    status = None
    for key, value in error.trailing_metadata() or ():
        if key == "grpc-status-details-bin":
            status = status_pb2.Status.FromString(value)
    found: ServiceError | None = None
    retry_after: float | None = None
    for packed in status.details if status is not None else ():
        detail, info = reasons.ErrorDetail(), error_details_pb2.RetryInfo()
        if packed.Unpack(detail):
            found = ServiceError(
                detail.reason,
                error.details() or "",
                subject=detail.subject,
                endpoint=detail.endpoint,
                fix=detail.mend,
            )
        elif packed.Unpack(info):
            retry_after = wire.seconds(info.retry_delay)
    if found is not None:
        found.retry_after = retry_after
    return found


def readable(details: str) -> str:
    """gRPC's message for a failed connection, without its internals."""
    if found := _OTHER_PROTOCOL.match(details[:LONGEST_DETAILS]):
        return f"what answers at {_plain(found[1])} does not speak gRPC"
    for pattern, sentence in _UNCONNECTED:
        if found := pattern.match(details[:LONGEST_DETAILS]):
            where, why = found.groups()
            return sentence.format(where=_plain(where), why=_uncapitalised(why))
    return details


def _uncapitalised(why: str) -> str:
    return why if why[:2].isupper() else why[0].lower() + why[1:]


def _plain(where: str) -> str:
    return unquote(where.removeprefix("ipv4:").removeprefix("ipv6:"))


LONGEST_DETAILS = 1_000
"""Characters of a status that are searched: a hostile server may write anything."""

_OTHER_PROTOCOL = re.compile(
    r"failed to connect to all addresses; last error: \w+: (\S+): Failed parsing HTTP/2"
)
_UNCONNECTED = (
    (
        re.compile(
            r"failed to connect to all addresses; last error: \w+: (\S+): .*?"
            r"([A-Z][\w ]+)(?: \(\d+\))?$"
        ),
        "no connection to {where}: {why}",
    ),
    (re.compile(r"errors resolving (\S+): .*?([A-Z][\w ]+)\]$"), "no address for {where}: {why}"),
)


async def abort(context: grpc.aio.ServicerContext[Any, Any], error: ServiceError) -> NoReturn:
    """Ends the RPC with the error; never returns."""
    await context.abort_with_status(rpc_status.to_status(to_status(error)))
    raise AssertionError("abort_with_status returned")


Handler = TypeVar("Handler", bound=Callable[..., Awaitable[Any]])


def answers_errors(handler: Handler) -> Handler:
    """Wraps a unary servicer method: ServiceError becomes its status, any other error INTERNAL."""
    log = structlog.get_logger("rpc")

    @wraps(handler)
    async def wrapped(self: Any, request: Any, context: Any) -> Any:
        try:
            return await handler(self, request, context)
        except ServiceError as error:
            await abort(context, error)
        except (grpc.aio.AbortError, grpc.aio.BaseError):
            raise
        except Exception as error:
            log.exception("unexpected", method=handler.__name__)
            await abort(context, internal(error))

    return wrapped  # type: ignore[return-value]


def first_line(error: BaseException) -> str:
    """First line of the message, without logs and traces of libraries; the class if it is empty."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]
