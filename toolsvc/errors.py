"""Why the service did not do what it was asked; the policy never sees one of these.

Refused            nothing ran (or, for SESSION_CLOSED, the session ended under the call)
StartError         the service cannot start; the message is one sentence that names the mend
"""

from __future__ import annotations

from enum import Enum

RETRY_SECONDS = 1.0
"""After which a request that was refused for the moment may come again."""


class Reason(Enum):
    """The contract's ErrorReason, those that a host gives; values are its names. Which of several
    workers holds a session, no host knows: WRONG_ENDPOINT is given by `workers.routing`."""

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
    INTERNAL = "INTERNAL"


class Refused(Exception):
    """`subject` is what the refusal speaks of, `retry_after` seconds after which the same request
    may succeed (None = never)."""

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
    """What the tool works with is not there now; the same request may succeed later."""

    def __init__(self, why: str) -> None:
        super().__init__(Reason.BACKEND_DOWN, why, retry_after=RETRY_SECONDS)


class BackendRefuses(Refused):
    """What the tool works with will not do this: it is no use to ask again."""

    def __init__(self, why: str) -> None:
        super().__init__(Reason.BACKEND_DOWN, why)


def backend_down(why: str) -> Refused:
    return BackendDown(why)


class StartError(Exception):
    """For the operator, who reads nothing but its message."""


def first_line(error: BaseException) -> str:
    """What it says, without the logs and traces that libraries append; its kind if it is mute."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]
