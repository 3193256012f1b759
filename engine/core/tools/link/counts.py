"""Counters of one tool service."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceStatistics:
    """A tool service as this engine sees it now. Sums begin at the engine's start."""

    open_sessions: int
    """At this moment."""
    calls_in_flight: int
    """At this moment."""
    opens_waiting: int
    """Opens that wait for room at this moment."""
    calls: int
    """Calls that were sent."""
    retries: Mapping[str, int]
    """By reason."""
    failures: Mapping[str, int]
    """By reason: requests that were given up, so that an attempt ended."""
    seconds_away: float
    """Time in which an endpoint did not answer although an answer was due."""
    restarts: int = 0
    """Restarts of a process that the engine started."""


@dataclass(slots=True)
class ServiceCounts:
    """Counters that all parts of one service's client increase."""

    retries: Counter[str] = field(default_factory=Counter)
    failures: Counter[str] = field(default_factory=Counter)
    seconds_away: float = 0.0
    opened: int = 0
    """Sessions since the start."""
    calls: int = 0
    """Calls sent since the start; a call that is sent again counts again."""
