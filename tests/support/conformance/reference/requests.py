"""What every request is looked at for, and how one is refused."""

from __future__ import annotations

from google.protobuf.message import Message

from toolwright.common.v1 import reasons_pb2 as reasons
from toolwright.rpc.errors import ServiceError


def refusal(
    reason: int, message: str, subject: str, *, retry_after: float | None = None
) -> ServiceError:
    """The error of the contract that travels."""
    return ServiceError(reason, message, subject=subject, retry_after=retry_after)


class Requests:
    def require(self, request: Message, name: str) -> None:
        if not getattr(request, name):
            raise refusal(reasons.ERROR_REASON_INVALID_REQUEST, f"{name} is missing", name)

    def seconds(self, request: Message, name: str, default: float) -> float:
        """A duration of the request; refuses a negative one."""
        if not request.HasField(name):
            return default
        value: float = getattr(request, name).ToNanoseconds() / 1e9
        if value < 0:
            raise refusal(reasons.ERROR_REASON_INVALID_REQUEST, f"{name} is negative", name)
        return value
