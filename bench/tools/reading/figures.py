"""Figures of what was measured: shots in, numbers out. Pure.

Latency is split in three that add up, call by call: `queue` and `run` as the service says them in
its answer, `wire` the rest (the client's and the server's gRPC, and whatever else is outside the
tool).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from statistics import fmean, median
from typing import Any, Self

from bench.tools.load.fleet import Shot


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """Milliseconds."""

    min: float
    avg: float
    p50: float
    p90: float
    p99: float
    max: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Self:
        """Percentiles are those values that at least so many in a hundred do not exceed."""
        ordered = sorted(values) or [0.0]

        def at(percent: int) -> float:
            return ordered[max(0, -(-len(ordered) * percent // 100) - 1)]

        return cls(
            min=ordered[0],
            avg=fmean(ordered),
            p50=at(50),
            p90=at(90),
            p99=at(99),
            max=ordered[-1],
        )

    @classmethod
    def median_of(cls, several: Sequence[Self]) -> Self:
        """Figure by figure."""
        return cls(**{f.name: median(getattr(one, f.name) for one in several) for f in fields(cls)})


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """One stretch of measuring. CPU seconds were used within it; `server_cpu_s` is None where
    the server's processes are not on this machine."""

    began: float
    seconds: float
    shots: Sequence[Shot]
    client_cpu_s: float
    server_cpu_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """What a row says of one server. `late`: how far the client was behind the intended start;
    CPU figures are milliseconds a call, the client's part of them apart."""

    requests: int
    answered: int
    requests_per_s: float
    latency: Spread
    wire: Spread
    queue: Spread
    run: Spread
    late: Spread
    cpu_ms: float | None
    client_cpu_ms: float
    makespan_s: float
    longest_sleep_s: float
    errors: Counter[str]

    @property
    def average_to_max(self) -> float:
        """How evenly calls are answered: 0.5 = one after the other, 1 = all at the end."""
        return self.latency.avg / self.latency.max if self.latency.max else 0.0

    @classmethod
    def of(cls, windows: Sequence[Window], *, checked: bool) -> Self:
        """All windows together. `checked`: a wrong answer is an error too (the floor answers
        nothing)."""
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
        """Figure by figure; calls and errors are added up, so that a median hides none."""
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
    return Spread.of([seconds(shot) * 1000 for shot in shots])


def _queued(shot: Shot) -> float:
    return _seconds(shot, "queued")


def _ran(shot: Shot) -> float:
    return _seconds(shot, "run")


def _seconds(shot: Shot, field: str) -> float:
    duration = getattr(shot.result, field)
    return float(duration.seconds + duration.nanos * 1e-9)
