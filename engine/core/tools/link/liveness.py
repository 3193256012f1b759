"""Liveness of the process behind an endpoint, judged by its messages. Pure.

A stopped process keeps its connections and sends nothing. To a waiting caller that looks like a
long call. So the endpoint is probed with a request that a working process answers from memory.

Invariants
- An endpoint is probed only while an answer is due.
- It is away since its last message, and back with its next one.
"""

from __future__ import annotations

from enum import Enum

QUIET_SECONDS = 3.0
"""Time without a message, while one is due, before a probe."""
PROBE_SECONDS = 5.0
"""Time within which a working process answers a probe."""


class LivenessStep(Enum):
    """What the caller must do now."""

    NOTHING = 0
    PROBE = 1
    AWAY = 2
    """The endpoint turns out to be away. Probe it again, too."""


class Liveness:
    """Liveness of one endpoint. Times are seconds of one clock."""

    def __init__(self) -> None:
        self._heard_at = 0.0
        self._probed_at: float | None = None
        self.away_since: float | None = None
        """None while the endpoint answers."""

    def expect(self, now: float) -> None:
        """Records the first request after an idle time. Silence begins here at the earliest."""
        self._heard_at = max(self._heard_at, now)

    def refused(self, now: float) -> bool:
        """Records a request that failed without an answer. Returns whether that is news."""
        if self.away_since is not None:
            return False
        self.away_since = now
        return True

    def heard(self, now: float) -> float | None:
        """Records a message of the endpoint. Returns the seconds of its outage; None if it was not
        away."""
        self._heard_at = now
        self._probed_at = None
        if self.away_since is None:
            return None
        away, self.away_since = now - self.away_since, None
        return away

    def tick(self, now: float) -> LivenessStep:
        """Returns the next step. Must be called regularly while an answer is due."""
        since = self._heard_at if self._probed_at is None else self._probed_at
        limit = QUIET_SECONDS if self._probed_at is None else PROBE_SECONDS
        if now - since < limit:
            return LivenessStep.NOTHING
        silent = self._probed_at is not None and self.away_since is None
        self._probed_at = now
        if silent:
            self.away_since = self._heard_at
            return LivenessStep.AWAY
        return LivenessStep.PROBE
