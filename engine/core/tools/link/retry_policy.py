"""When a request that failed is sent again, and when that is given up. Pure.

Invariants
- A service that is away is tried again for a time, never for a number of tries.
- A service that is full is there: it is asked again for as long as it takes.
- No pause is shorter than `SHORTEST_PAUSE` or longer than `LONGEST_PAUSE`, whatever a service says.

It does not send, sleep, or read a clock.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import grpc

from toolwright.common.v1 import reasons_pb2 as reasons
from toolwright.process.backoff import Backoff
from toolwright.rpc.channel import LONGEST_PAUSE, SHORTEST_PAUSE
from toolwright.rpc.errors import ServiceError, TransportError

WHILE_AWAY = Backoff(0.05, 5.0)
WHILE_FULL = Backoff(0.05, 1.0)
"""Pauses are short while a service is full: room is made at any moment."""

Failure = ServiceError | TransportError


class Kind(Enum):
    """What a failure says of the service."""

    AWAY = "away"
    """The service is out of reach, or is out of order and says that this will pass."""
    FULL = "full"
    """The service is there and has no room: nothing is wrong."""
    MOVED = "moved"
    """Another endpoint holds the session."""
    LOST = "lost"
    """The session is gone with its state."""
    REFUSED = "refused"
    """The same request would be answered the same again."""


_KINDS: dict[int, Kind] = {
    reasons.ERROR_REASON_WRONG_ENDPOINT: Kind.MOVED,
    reasons.ERROR_REASON_SESSION_LOST: Kind.LOST,
    reasons.ERROR_REASON_SESSION_NOT_FOUND: Kind.LOST,
    reasons.ERROR_REASON_SESSION_CLOSED: Kind.LOST,
}
_FULL = (reasons.ERROR_REASON_QUEUE_LIMIT, reasons.ERROR_REASON_TOO_MANY_SESSIONS)
_OUT_OF_REACH = (
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.DEADLINE_EXCEEDED,
    grpc.StatusCode.CANCELLED,  # by the service, which stops
)


def kind_of(error: Failure) -> Kind:
    """A service's error that neither passes (`ServiceError.passes`) nor tells of its session is a
    refusal, whatever the code."""
    if isinstance(error, TransportError):
        return Kind.AWAY if error.code in _OUT_OF_REACH else Kind.REFUSED
    found = _KINDS.get(error.reason)
    if found is Kind.MOVED and not error.endpoint:
        return Kind.REFUSED  # it does not say where to
    if found is not None:
        return found
    if error.reason in _FULL and error.retry_after is not None:
        return Kind.FULL
    return Kind.AWAY if error.passes else Kind.REFUSED


def name_of(error: Failure) -> str:
    """The failure's reason in a word, to count it by: "QUEUE_LIMIT", "UNAVAILABLE"."""
    return error.code.name if isinstance(error, TransportError) else error.reason_name


def asked_to_wait(error: Failure) -> float | None:
    """Seconds after which the service invites a retry."""
    return error.retry_after if isinstance(error, ServiceError) else None


@dataclass(slots=True)
class Patience:
    """Patience with one request, over all its tries. `seconds`: for a service that is away."""

    seconds: float
    _away_since: float | None = None
    _tries: int = 0

    def after(self, kind: Kind, now: float, word: float | None = None) -> float | None:
        """Seconds to wait before the next try; None = give up. `word`: what the service asked for.

        MOVED, LOST and REFUSED are not for waiting: they are given up.
        """
        if kind is Kind.FULL:
            self._away_since = None
            return self._pause(WHILE_FULL, word)
        if kind is not Kind.AWAY:
            return None
        if self._away_since is None:
            self._away_since = now
        left = self._away_since + self.seconds - now
        if left <= 0:
            return None
        # The last try comes when the time is up, not a pause before.
        return min(self._pause(WHILE_AWAY, word), max(left, SHORTEST_PAUSE))

    def answered(self) -> None:
        """The service has answered; what comes next is another failure."""
        self._away_since = None
        self._tries = 0

    def _pause(self, backoff: Backoff, word: float | None) -> float:
        growing = backoff.pause(self._tries)
        self._tries += 1
        return min(LONGEST_PAUSE, max(SHORTEST_PAUSE, growing, word or 0.0))
