"""What is counted of one tool service."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceStatistics:
    """A tool service as this engine sees it now.

    open_sessions, calls_in_flight, opens_waiting (for room): at this moment. All else since the
    start: calls that were sent, retries and failures by their reason (`failures`: given up, so that
    an attempt ended), seconds_away: in which an endpoint did not answer although something was
    expected of it, restarts: of a process that the engine started.
    """

    open_sessions: int
    calls_in_flight: int
    opens_waiting: int
    calls: int
    retries: Mapping[str, int]
    failures: Mapping[str, int]
    seconds_away: float
    restarts: int = 0


@dataclass(slots=True)
class Counts:
    """Kept by all who work on one service."""

    retries: Counter[str] = field(default_factory=Counter)
    failures: Counter[str] = field(default_factory=Counter)
    seconds_away: float = 0.0
    opened: int = 0
    """Sessions, since the start."""
    calls: int = 0
    """Sent, since the start; one that is sent again counts again."""
