"""What is to be measured, checked before anything is started. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bench.errors import BenchError
from bench.tools.load.workloads import WORKLOADS, Workload
from bench.tools.reading.rows import OPENING, Mode

DEFAULT_MODES = (Mode.BURST, Mode.CLOSED)
SLICES = 5
"""Rounds that the seconds of a loop are cut into, service and floor in turn."""
SLEEPS_PER_SLICE = 4
"""A slice is at least so many of the workload's longest calls: what is under way at its end
does not count for the rate."""


class PlanError(BenchError):
    """What was asked for makes no sense; the message says what would."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Concurrencies ascend, so that sessions are opened once. `seconds`: of a closed or an open
    loop; `bursts`: rounds of a burst; `rates`: calls a second of the open loops."""

    workloads: tuple[Workload, ...]
    modes: tuple[Mode, ...]
    concurrency: tuple[int, ...]
    rates: tuple[float, ...] = ()
    bursts: int = 5
    seconds: float = 5.0

    @property
    def tools(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(workload.tool for workload in self.workloads))

    @property
    def sessions(self) -> int:
        """The most that are open at once: those that a sweep holds, and those of a mode that makes
        its own."""
        return max(self.concurrency) * (self.holds + bool(OPENING.intersection(self.modes)))

    @property
    def holds(self) -> bool:
        """A mode needs sessions that are open before its clock starts."""
        return any(mode not in OPENING for mode in self.modes)

    def slices(self, workload: Workload) -> tuple[int, float]:
        """(rounds, seconds of one) of a loop with this workload."""
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
) -> Plan:
    """From words with commas. PlanError names the word that is wrong."""
    rates = tuple(_number(word, "--rate") for word in _words(rate or ""))
    modes = tuple(_mode(word) for word in _words(mode)) if mode else DEFAULT_MODES
    if (Mode.OPEN in modes) != bool(rates):
        raise PlanError(
            "--mode open needs --rate, and --rate needs --mode open: calls a second, such as "
            "--mode open --rate 500,1000"
        )
    return Plan(
        workloads=tuple(_workload(word) for word in _words(workload)),
        modes=modes,
        concurrency=tuple(sorted({_whole(word) for word in _words(concurrency)})),
        rates=rates,
        bursts=bursts,
        seconds=seconds,
    )


def _words(text: str) -> Sequence[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def _workload(word: str) -> Workload:
    if word not in WORKLOADS:
        raise PlanError(f"--workload {word}: there are {', '.join(WORKLOADS)}")
    return WORKLOADS[word]


def _mode(word: str) -> Mode:
    try:
        return Mode(word)
    except ValueError:
        raise PlanError(f"--mode {word}: there are {', '.join(Mode)}") from None


def _whole(word: str) -> int:
    if not word.isdigit() or int(word) < 1:
        raise PlanError(f"--concurrency {word}: give whole numbers above 0, such as 64,256")
    return int(word)


def _number(word: str, option: str) -> float:
    try:
        value = float(word)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise PlanError(f"{option} {word}: give numbers above 0, such as 500,1000")
    return value
