"""When a failed request to a tool service is sent again, and when it is given up. Pure.

Invariants
- An unreachable service is retried for a time, never for a number of tries.
- A full service is reachable: it is retried for as long as it takes.
- A pause lies within `SHORTEST_PAUSE` and `LONGEST_PAUSE`, whatever a service suggests.

The policy does not send, sleep or read a clock.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from engine.core.tools.link.counts import ServiceCounts
from toolwright.common.v1 import reasons_pb2 as reasons
from toolwright.process.backoff import Backoff
from toolwright.rpc.channel import LONGEST_PAUSE, SHORTEST_PAUSE, may_retry
from toolwright.rpc.errors import ServiceError, TransportError

WHILE_AWAY = Backoff(0.05, 5.0)
WHILE_FULL = Backoff(0.05, 1.0)
"""Pauses while a service is full. They are short, because room may come at any moment."""

Failure = ServiceError | TransportError


class FailureKind(Enum):
    """What a failure means for the next try."""

    AWAY = "away"
    """The service is unreachable, or reports a fault that will pass."""
    FULL = "full"
    """The service is reachable and has no room: nothing is wrong."""
    MOVED = "moved"
    """Another endpoint holds the session."""
    LOST = "lost"
    """The session is gone with its state."""
    FENCED = "fenced"
    """Another process has the session now."""
    REFUSED = "refused"
    """The same request would get the same answer."""


_KINDS: dict[int, FailureKind] = {
    reasons.ERROR_REASON_WRONG_ENDPOINT: FailureKind.MOVED,
    reasons.ERROR_REASON_SESSION_LOST: FailureKind.LOST,
    reasons.ERROR_REASON_SESSION_NOT_FOUND: FailureKind.LOST,
    reasons.ERROR_REASON_SESSION_CLOSED: FailureKind.LOST,
    reasons.ERROR_REASON_FENCED: FailureKind.FENCED,
}
_FULL = (reasons.ERROR_REASON_QUEUE_LIMIT, reasons.ERROR_REASON_TOO_MANY_SESSIONS)


def failure_kind(error: Failure) -> FailureKind:
    """The kind of a failure. A service's error that neither passes (`ServiceError.passes`) nor
    concerns its session is a refusal, whatever the code."""
    if isinstance(error, ServiceError):
        found = _KINDS.get(error.reason)
        if found is FailureKind.MOVED and not error.endpoint:
            return FailureKind.REFUSED  # without the new address
        if found is not None:
            return found
        if error.reason in _FULL and error.retry_after is not None:
            return FailureKind.FULL
    return FailureKind.AWAY if may_retry(error) else FailureKind.REFUSED


def failure_name(error: Failure) -> str:
    """The failure's reason as a word for the counters: "QUEUE_LIMIT", "UNAVAILABLE"."""
    return error.code.name if isinstance(error, TransportError) else error.reason_name


def suggested_pause(error: Failure) -> float | None:
    """Pause that the service suggests before a retry, in seconds."""
    return error.retry_after if isinstance(error, ServiceError) else None


@dataclass(slots=True)
class RetryPolicy:
    """Retries of one request, over all its tries. `seconds`: time limit for an unreachable
    service."""

    seconds: float
    _away_since: float | None = None
    _tries: int = 0

    def after(self, kind: FailureKind, now: float, word: float | None = None) -> float | None:
        """Seconds to wait before the next try; None = give up. word: pause that the service
        suggested.

        MOVED, LOST, FENCED and REFUSED are given up at once.
        """
        if kind is FailureKind.FULL:
            self._away_since = None
            return self._pause(WHILE_FULL, word)
        if kind is not FailureKind.AWAY:
            return None
        if self._away_since is None:
            self._away_since = now
        left = self._away_since + self.seconds - now
        if left <= 0:
            return None
        # The last try comes when the time is up, not one pause before.
        return min(self._pause(WHILE_AWAY, word), max(left, SHORTEST_PAUSE))

    def after_failure(self, error: Failure, now: float, counts: ServiceCounts) -> float | None:
        """`after` for the failure of a request, which is counted unless it is fenced off."""
        kind = failure_kind(error)
        pause = self.after(kind, now, suggested_pause(error))
        if kind is FailureKind.FENCED:
            return pause
        (counts.failures if pause is None else counts.retries)[failure_name(error)] += 1
        return pause

    def answered(self) -> None:
        """Records an answer of the service; a later failure begins a new budget."""
        self._away_since = None
        self._tries = 0

    def _pause(self, backoff: Backoff, word: float | None) -> float:
        growing = backoff.pause(self._tries)
        self._tries += 1
        return min(LONGEST_PAUSE, max(SHORTEST_PAUSE, growing, word or 0.0))
