"""The rows as text, one line each, and the current work.

Nothing is drawn while a clock runs: the client's CPU time is part of the figures.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.control import Control
from rich.segment import ControlType

from bench.tools.reading.knee import knee
from bench.tools.reading.rows import Mode, ToolRow

HEADER = (
    f"{'workload':9}{'mode':9}{'at once':>8}{'calls/s':>8}{'floor/s':>8}"
    f"{'p50 ms':>9}{'p99':>8}{'max':>8}{'wire':>8}{'queue':>7}{'run':>8}"
    f"{'avg/max':>8}{'floor avg/max':>14}{'CPU ms':>8}"
    f"{'client':>7}{'floor CPU':>10}{'MiB/s.':>7}  errors"
)


class Screen:
    """Lines that stay, and on a terminal one line about the current work."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(highlight=False, soft_wrap=True, markup=False)

    def say(self, text: str = "") -> None:
        self.clear()
        self._console.print(text)

    def doing(self, text: str) -> None:
        self.clear()
        if self._console.is_terminal:
            self._console.print(f"  {text} ...", style="dim", end="")

    def clear(self) -> None:
        """Removes the line about the current work."""
        if self._console.is_terminal:
            self._console.control(
                Control.move_to_column(0), Control((ControlType.ERASE_IN_LINE, 2))
            )


def line(row: ToolRow) -> str:
    """One row, below HEADER."""
    ours, floor = row.ours, row.floor
    mode = f"{row.mode} {row.rate:g}" if row.rate is not None else str(row.mode)
    return (
        f"{row.workload:9}{mode:9}{row.concurrency:>8}"
        f"{ours.requests_per_s:>8.0f}{floor.requests_per_s:>8.0f}"
        f"{ours.latency.p50:>9.1f}{ours.latency.p99:>8.1f}{ours.latency.max:>8.1f}"
        f"{ours.wire.avg:>8.1f}{ours.queue.avg:>7.1f}{ours.run.avg:>8.1f}"
        f"{ours.average_to_max:>8.2f}{floor.average_to_max:>14.2f}"
        f"{_or_dash(ours.cpu_ms, 3):>8}{ours.client_cpu_ms:>7.3f}{_or_dash(floor.cpu_ms, 3):>10}"
        f"{_or_dash(row.pss_mib_per_session, 2):>7}  {row.errors}"
    )


def remarks(rows: Sequence[ToolRow]) -> Iterable[str]:
    """Sentences on the rows: knees, late bursts and errors."""
    for workload in dict.fromkeys(row.workload for row in rows):
        loops = [row for row in rows if row.workload == workload and row.mode is Mode.CLOSED]
        if len(loops) > 1:
            yield _knee_of(workload, loops)
    for row in rows:
        where = f"{row.name}, {row.concurrency}"
        sleeps = row.ours.longest_sleep_s
        if sleeps and row.mode is Mode.BURST:
            yield (
                f"{where}: all answered after {row.ours.makespan_s:.2f} s, "
                f"{row.ours.makespan_s / sleeps - 1:+.1%} of the longest sleep"
            )
        for text, count in row.ours.errors.most_common(3):
            yield f"{where}: {count} x {text}"


def _knee_of(workload: str, loops: Sequence[ToolRow]) -> str:
    found = knee((row.concurrency, row.ours.requests_per_s, row.ours.latency.avg) for row in loops)
    if found is None:
        return f"{workload}: no knee up to {max(row.concurrency for row in loops)} at once"
    return f"{workload}: the knee is at {found} at once; beyond it calls wait for each other"


def _or_dash(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:.{digits}f}"
