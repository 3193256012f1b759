"""The rows of a report, and their JSON.

    {"rows": [ROW ...], "machine": {...}, "versions": {...}}

A ROW has `workload`, `mode`, `concurrency`, `requests`, `errors`, and:

- `requests_per_s`; `latency_ms` with `min`, `avg`, `p50`, `p90`, `p99` and `max`.
- `queue_ms`, `run_ms`, `wire_ms`: averages, which add up to that of the latency.
- `late_ms`: how late the client sent a call.
- `makespan_s`: from the start to the last answer. `longest_sleep_s`: the longest sleep of a call.
- `cpu_ms_per_call`: CPU time of client, service and sandboxes. `client_cpu_ms_per_call`: the
  client's part.
- `rss_mib`, `pss_mib`: memory of the service, resident and proportional. `idle_pss_mib`: before any
  session. `pss_mib_per_session`: what one session adds.
- `floor_` before a key: the same figure of the floor. `rate_to_floor`: `requests_per_s` as a share
  of the floor's.

Figures that were not measured are null.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from bench.tools.reading.figures import Figures
from bench.tools.trial import Round

MIB = 1 << 20
ERRORS_SHOWN = 5


class Mode(StrEnum):
    """Kind of load."""

    BURST = "burst"
    """Every session calls once, all at the same instant."""
    CLOSED = "closed"
    """Every session calls again as soon as it has its answer."""
    OPEN = "open"
    """Calls are a Poisson process, at a rate that does not depend on the answers."""
    SESSIONS = "sessions"
    """All sessions are held, and two bursts find each of them alive. The figure is memory."""
    OPENS = "opens"
    """New sessions, one after the other, each until the answer to its first call."""
    RUSH = "rush"
    """The same, all opened at the same instant."""


OPENING = frozenset({Mode.OPENS, Mode.RUSH})
"""Modes that open sessions of their own. The others call in sessions that are held."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """Bytes of all processes of the service."""

    rss: int
    pss: int
    idle_pss: int
    """Sum of PSS before any session."""
    sessions: int
    """Number of open sessions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolRow:
    """Figures of one load."""

    workload: str
    mode: Mode
    concurrency: int
    rate: float | None
    ours: Figures
    floor: Figures
    isolation: str
    rounds: Sequence[tuple[Figures, Figures]]
    """Figures of service and floor in each round; they show the noise."""
    memory: Memory | None

    @classmethod
    def of(
        cls,
        workload: str,
        mode: Mode,
        concurrency: int,
        rounds: Sequence[Round],
        memory: Memory | None,
        *,
        rate: float | None = None,
    ) -> ToolRow:
        """The row of a load. Figures of a burst are medians of its rounds. In other modes all
        rounds are one sample."""
        each = [
            (Figures.of([one.ours], checked=True), Figures.of([one.floor], checked=False))
            for one in rounds
        ]
        if mode in (Mode.BURST, Mode.SESSIONS):
            ours = Figures.median_of([one for one, _ in each])
            floor = Figures.median_of([one for _, one in each])
        else:
            ours = Figures.of([one.ours for one in rounds], checked=True)
            floor = Figures.of([one.floor for one in rounds], checked=False)
        return cls(
            workload=workload,
            mode=mode,
            concurrency=concurrency,
            rate=rate,
            ours=ours,
            floor=floor,
            isolation=_isolation(rounds),
            rounds=each,
            memory=memory,
        )

    @property
    def name(self) -> str:
        """The load without its size."""
        return load_name(self.workload, self.mode, self.rate)

    @property
    def errors(self) -> int:
        return self.ours.errors.total()

    @property
    def pss_mib_per_session(self) -> float | None:
        """Memory that one session adds to an idle service."""
        if self.memory is None:
            return None
        return (self.memory.pss - self.memory.idle_pss) / MIB / self.memory.sessions

    def to_json(self) -> dict[str, Any]:
        """See the module."""
        ours, floor, memory = self.ours, self.floor, self.memory
        return {
            "workload": self.workload,
            "mode": str(self.mode),
            "concurrency": self.concurrency,
            "rate": self.rate,
            "isolation": self.isolation,
            "requests": ours.requests,
            "requests_per_s": ours.requests_per_s,
            "latency_ms": asdict(ours.latency),
            **{f"{name}_ms": spread.avg for name, spread in ours.parts.items()},
            "parts_ms": {name: asdict(spread) for name, spread in ours.parts.items()},
            "late_ms": asdict(ours.late),
            "errors": self.errors,
            "error_texts": dict(ours.errors.most_common(ERRORS_SHOWN)),
            "cpu_ms_per_call": ours.cpu_ms,
            "client_cpu_ms_per_call": ours.client_cpu_ms,
            "floor_cpu_ms_per_call": floor.cpu_ms,
            "floor_client_cpu_ms_per_call": floor.client_cpu_ms,
            "floor_requests_per_s": floor.requests_per_s,
            "floor_latency_ms": asdict(floor.latency),
            "rate_to_floor": ours.requests_per_s / floor.requests_per_s,
            "average_to_max": ours.average_to_max,
            "floor_average_to_max": floor.average_to_max,
            "makespan_s": ours.makespan_s,
            "longest_sleep_s": ours.longest_sleep_s,
            **{
                f"{name}_mib": getattr(memory, name) / MIB if memory else None
                for name in ("rss", "pss", "idle_pss")
            },
            "pss_mib_per_session": self.pss_mib_per_session,
            "rounds": [{"ours": _noted(one), "floor": _noted(other)} for one, other in self.rounds],
        }


def _isolation(rounds: Sequence[Round]) -> str:
    """The isolation that the answers state; "" for a tool that runs no foreign code."""
    found = {
        shot.result.isolation
        for one in rounds
        for shot in one.ours.shots
        if shot.result is not None
    }
    return ",".join(sorted(found - {""}))


def load_name(workload: str, mode: str, rate: float | None) -> str:
    """Such as "hello, burst" or "mixed, open 200/s"."""
    return f"{workload}, {mode}" + (f" {rate:g}/s" if rate else "")


def levels(rows: Iterable[ToolRow]) -> list[str]:
    """The levels of isolation in force."""
    return sorted({row.isolation for row in rows} - {""})


def _noted(figures: Figures) -> dict[str, float | None]:
    return {
        "requests_per_s": figures.requests_per_s,
        "p50_ms": figures.latency.p50,
        "cpu_ms_per_call": figures.cpu_ms,
    }
