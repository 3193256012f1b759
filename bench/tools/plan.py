"""The plan of a sweep, checked before a server starts. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from bench.errors import UsageError
from bench.measuring.command import whole_numbers
from bench.tools.load.workloads import WORKLOADS, ToolWorkload
from bench.tools.reading.rows import OPENING, Mode

DEFAULT_MODES = (Mode.BURST, Mode.CLOSED)
SLICES = 5
"""Rounds of a loop, on service and floor in turn."""
SLEEPS_PER_SLICE = 4
"""Least length of a round, in longest calls of the workload. Calls in flight at its end do not
count for the rate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepPlan:
    """Loads of one sweep."""

    workloads: tuple[ToolWorkload, ...]
    modes: tuple[Mode, ...]
    concurrency: tuple[int, ...]
    """Ascending, so that each session is opened once."""
    rates: tuple[float, ...] = ()
    """Calls a second of the open loops."""
    bursts: int = 5
    """Rounds of a burst."""
    seconds: float = 5.0
    """Length of a closed or open loop."""

    @property
    def tools(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(workload.tool for workload in self.workloads))

    @property
    def sessions(self) -> int:
        """Largest number of open sessions: those of the sweep, and those of a mode that opens its
        own."""
        return max(self.concurrency) * (self.holds + bool(OPENING.intersection(self.modes)))

    @property
    def holds(self) -> bool:
        """Whether a mode needs sessions that are open before its clock starts."""
        return any(mode not in OPENING for mode in self.modes)

    def slices(self, workload: ToolWorkload) -> tuple[int, float]:
        """(rounds, seconds of one round) of a loop with this workload."""
        seconds = max(self.seconds / SLICES, SLEEPS_PER_SLICE * workload.longest_s)
        return max(1, round(self.seconds / seconds)), seconds


def parse_plan(
    workload: str,
    concurrency: str,
    mode: str | None,
    rate: str | None,
    *,
    bursts: int,
    seconds: float,
) -> SweepPlan:
    """A plan from words with commas. Raises UsageError that names a wrong word."""
    rates = tuple(map(_rate, _words(rate or "")))
    modes = tuple(map(_mode, _words(mode))) if mode else DEFAULT_MODES
    if (Mode.OPEN in modes) != bool(rates):
        raise UsageError(
            "--mode open needs --rate, and --rate needs --mode open: calls a second, such as "
            "--mode open --rate 500,1000"
        )
    return SweepPlan(
        workloads=tuple(map(_workload, _words(workload))),
        modes=modes,
        concurrency=tuple(sorted(set(whole_numbers("--concurrency", concurrency)))),
        rates=rates,
        bursts=bursts,
        seconds=seconds,
    )


def _words(text: str) -> Sequence[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def _workload(word: str) -> ToolWorkload:
    if word not in WORKLOADS:
        raise UsageError(f"--workload {word}: there are {', '.join(WORKLOADS)}")
    return WORKLOADS[word]


def _mode(word: str) -> Mode:
    if word not in list(Mode):
        raise UsageError(f"--mode {word}: there are {', '.join(Mode)}")
    return Mode(word)


def _rate(word: str) -> float:
    with suppress(ValueError):
        if 0 < float(word) < float("inf"):
            return float(word)
    raise UsageError(f"--rate {word}: give numbers above 0, such as 500,1000")
