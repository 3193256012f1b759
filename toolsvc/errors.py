"""Errors of the service; the policy never reads one of these.

Refused            nothing ran (or, for SESSION_CLOSED, the session ended under the call)
StartError         the service cannot start; the message is one sentence that names the fix
"""

from __future__ import annotations

from enum import Enum

RETRY_SECONDS = 1.0
"""Time after which a request that was refused for the moment may come again, in seconds."""


class Reason(Enum):
    """Reasons of the contract's ErrorReason that a host gives; values are its names.
    `toolsvc.fleet` gives WRONG_ENDPOINT: a host does not know which other host holds a session."""

    INVALID_REQUEST = "INVALID_REQUEST"
    SESSION_NOT_FOUND = "SESSION_NOT_FOUND"
    SESSION_LOST = "SESSION_LOST"
    SESSION_CLOSED = "SESSION_CLOSED"
    CALL_ID_REUSED = "CALL_ID_REUSED"
    RESULT_FORGOTTEN = "RESULT_FORGOTTEN"
    QUEUE_LIMIT = "QUEUE_LIMIT"
    TOO_MANY_SESSIONS = "TOO_MANY_SESSIONS"
    DRAINING = "DRAINING"
    BACKEND_DOWN = "BACKEND_DOWN"
    UNKNOWN_TOOL = "UNKNOWN_TOOL"
    BLOB_NOT_FOUND = "BLOB_NOT_FOUND"
    SESSION_BUSY = "SESSION_BUSY"
    NOT_SERVED = "NOT_SERVED"
    FENCED = "FENCED"
    INTERNAL = "INTERNAL"


class Refused(Exception):
    """A request that the service did not carry out. subject: name of what the refusal is about.
    retry_after: time after which the same request may succeed, in seconds; None = never."""

    def __init__(
        self,
        reason: Reason,
        message: str,
        *,
        subject: str = "",
        fix: str = "",
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message
        self.subject = subject
        self.fix = fix
        self.retry_after = retry_after


class BackendDown(Refused):
    """A tool's backend is not there now; the same request may succeed later."""

    def __init__(self, why: str) -> None:
        super().__init__(Reason.BACKEND_DOWN, why, retry_after=RETRY_SECONDS)


class BackendRefuses(Refused):
    """A tool's backend refuses this request, now and later."""

    def __init__(self, why: str) -> None:
        super().__init__(Reason.BACKEND_DOWN, why)


def backend_down(why: str) -> Refused:
    return BackendDown(why)


class StartError(Exception):
    """The service cannot start. The operator reads nothing but the message."""
