"""Whether the process behind an endpoint is there, judged by what is heard of it. Pure.

A process that is stopped keeps its connections and says nothing. What waits for it cannot tell that
from a long call, so it is probed: with a request that a process which works answers from memory.

Invariants
- Nothing is asked of an endpoint from which nothing is expected.
- It is away from the moment at which it was last heard, and back with its first word.
"""

from __future__ import annotations

from enum import Enum

QUIET_SECONDS = 3.0
"""Without a word, while one is expected, until it is probed."""
PROBE_SECONDS = 5.0
"""In which a process that works answers a probe."""


class Step(Enum):
    """What is to be done now."""

    NOTHING = 0
    PROBE = 1
    AWAY = 2
    """The endpoint turns out to be away. It is to be probed again, too."""


class Silence:
    """What is heard of one endpoint. Times are seconds of one clock."""

    def __init__(self) -> None:
        self._heard_at = 0.0
        self._probed_at: float | None = None
        self.away_since: float | None = None
        """None while it is there."""

    def expect(self, now: float) -> None:
        """The first request after an idle time is on its way: silence begins here at the
        earliest."""
        self._heard_at = max(self._heard_at, now)

    def refused(self, now: float) -> bool:
        """A request came back with nothing. True where that is news."""
        if self.away_since is not None:
            return False
        self.away_since = now
        return True

    def heard(self, now: float) -> float | None:
        """A word came, whatever it said. Seconds that it was away; None where it was there."""
        self._heard_at = now
        self._probed_at = None
        if self.away_since is None:
            return None
        away, self.away_since = now - self.away_since, None
        return away

    def tick(self, now: float) -> Step:
        """To be called now and then while something is expected of the endpoint."""
        since = self._heard_at if self._probed_at is None else self._probed_at
        limit = QUIET_SECONDS if self._probed_at is None else PROBE_SECONDS
        if now - since < limit:
            return Step.NOTHING
        silent = self._probed_at is not None and self.away_since is None
        self._probed_at = now
        if silent:
            self.away_since = self._heard_at
            return Step.AWAY
        return Step.PROBE
