"""Refusals of a request. A dialect gives them its own shape."""

from __future__ import annotations


class ApiError(Exception):
    """A request is refused. `message` names the thing and the fix.

    status: the HTTP status. kind: OpenAI's error type. code: a word for programs, or "". param: the
    request's key that is wrong, or "". retry_after: seconds after which the request may succeed.
    """

    def __init__(
        self,
        message: str,
        *,
        status: int = 400,
        kind: str = "invalid_request_error",
        code: str = "",
        param: str = "",
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.status = status
        self.kind = kind
        self.code = code
        self.param = param
        self.retry_after = retry_after


def wrong(param: str, message: str) -> ApiError:
    """A key of the request is wrong."""
    return ApiError(f"{param}: {message}", param=param)


class StartError(Exception):
    """The ingress cannot start. The message names the thing and the fix."""
