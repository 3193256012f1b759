"""Figures of what was measured: shots in, numbers out. Pure.

The latency of a call is the sum of three parts. The service states `queue` and `run` in its answer.
`wire` is the rest: gRPC of client and server, and all else outside of the tool.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from statistics import median
from typing import Any, Self

from bench.measuring.spread import Spread
from bench.tools.load.fleet import Shot


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """One stretch of measuring, and the CPU seconds that were used within it."""

    began: float
    seconds: float
    shots: Sequence[Shot]
    client_cpu_s: float
    server_cpu_s: float | None
    """None for a server on another machine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """Figures of one server in a row."""

    requests: int
    answered: int
    requests_per_s: float
    latency: Spread
    wire: Spread
    queue: Spread
    run: Spread
    late: Spread
    """From the intended start of a call to its start."""
    cpu_ms: float | None
    """CPU milliseconds a call of client and server."""
    client_cpu_ms: float
    makespan_s: float
    longest_sleep_s: float
    errors: Counter[str]

    @property
    def parts(self) -> dict[str, Spread]:
        """The parts of the latency."""
        return {"wire": self.wire, "queue": self.queue, "run": self.run}

    @property
    def average_to_max(self) -> float:
        """0.5 if calls are answered one after the other, 1 if all are answered at the end."""
        return self.latency.avg / self.latency.max if self.latency.max else 0.0

    @classmethod
    def of(cls, windows: Sequence[Window], *, checked: bool) -> Self:
        """The figures of all windows together. checked: whether a wrong answer is an error; the
        floor's answers are empty."""
        shots = [shot for window in windows for shot in window.shots]
        answered = [shot for shot in shots if shot.result is not None]
        calls = max(1, len(shots))
        client = sum(window.client_cpu_s for window in windows)
        servers = [w.server_cpu_s for w in windows if w.server_cpu_s is not None]
        return cls(
            requests=len(shots),
            answered=len(answered),
            requests_per_s=sum(map(_in_time, windows)) / sum(w.seconds for w in windows),
            latency=_spread(answered, lambda shot: shot.seconds),
            wire=_spread(answered, lambda shot: shot.seconds - _queued(shot) - _ran(shot)),
            queue=_spread(answered, _queued),
            run=_spread(answered, _ran),
            late=_spread(shots, lambda shot: shot.sent - shot.intended),
            cpu_ms=(client + sum(servers)) * 1000 / calls if servers else None,
            client_cpu_ms=client * 1000 / calls,
            makespan_s=max(map(_makespan, windows)),
            longest_sleep_s=max((shot.action.sleeps_s for shot in shots), default=0.0),
            errors=Counter(_faults(shots, checked)),
        )

    @classmethod
    def median_of(cls, several: Sequence[Self]) -> Self:
        """The median of each figure. Calls and errors are summed, so that a median hides none."""
        merged: dict[str, Any] = {}
        for name in (f.name for f in fields(cls)):
            values = [getattr(one, name) for one in several]
            first = values[0]
            if isinstance(first, Spread):
                merged[name] = Spread.median_of(values)
            elif isinstance(first, Counter):
                merged[name] = sum(values, Counter())
            elif name in ("requests", "answered"):
                merged[name] = sum(values)
            else:
                merged[name] = None if None in values else median(values)
        return cls(**merged)


def _in_time(window: Window) -> int:
    end = window.began + window.seconds
    return sum(shot.result is not None and shot.answered <= end for shot in window.shots)


def _makespan(window: Window) -> float:
    return max((shot.answered for shot in window.shots), default=window.began) - window.began


def _faults(shots: Sequence[Shot], checked: bool) -> Iterator[str]:
    for shot in shots:
        if checked or shot.error is not None:
            fault = shot.fault()
            if fault is not None:
                yield fault


def _spread(shots: Sequence[Shot], seconds: Callable[[Shot], float]) -> Spread:
    return Spread.of_seconds(map(seconds, shots))


def _queued(shot: Shot) -> float:
    return _seconds(shot, "queued")


def _ran(shot: Shot) -> float:
    return _seconds(shot, "run")


def _seconds(shot: Shot, field: str) -> float:
    duration = getattr(shot.result, field)
    return float(duration.seconds + duration.nanos * 1e-9)
