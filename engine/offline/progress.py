"""How far `engine eval` or `engine sample` is: one line on a terminal, a few in a file.

A terminal shows the line in place. A file gets one at every tenth of the work, and one after every
minute without a line.
"""

from __future__ import annotations

import contextlib
import math
import shutil
import time
from collections.abc import Callable, Sequence
from typing import TextIO

from engine.serving.evaluation.tally import SuiteTally
from engine.serving.telemetry.logs import print_line
from toolwright.page.text import plain
from toolwright.text.figures import compact

SECONDS = 1.0
"""Interval between two updates."""
QUIET_SECONDS = 60.0
"""Longest time without a line in a file."""
_ERASE = "\r\x1b[2K"


class ProgressLine:
    """Shows how much of the work is done. Pace counts from its construction."""

    def __init__(
        self,
        total: int,
        done: int,
        out: TextIO,
        *,
        unit: str,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """total, done: numbers of `unit`s. clock: seconds."""
        self._unit = unit
        self._total = total
        self._before = done
        self._out = out
        self._clock = clock
        self._began = self._shown = clock()
        self._in_place = out.isatty()
        self._tenth = self._tenth_of(done)

    def pace(self, done: int) -> float:
        """Units a second since the start of this process's work."""
        seconds = self._clock() - self._began
        return (done - self._before) / seconds if seconds > 0 else 0.0

    def line(self, done: int, parts: Sequence[str]) -> str:
        """The text of a line. parts: what follows the count; empty ones are left out."""
        seconds = self._clock() - self._began
        head = f"[{seconds:6.0f} s] {done:,}/{self._total:,} {self._unit}"
        return plain(", ".join(part for part in (head, *parts) if part))

    def show(self, done: int, parts: Sequence[str]) -> None:
        if self._in_place:
            width = shutil.get_terminal_size().columns - 1
            self._write(_ERASE + self.line(done, parts)[:width])
            return
        now, tenth = self._clock(), self._tenth_of(done)
        if tenth > self._tenth or now - self._shown >= QUIET_SECONDS:
            self._tenth, self._shown = tenth, now
            print_line(self.line(done, parts), self._out)

    def end(self) -> None:
        """Removes the line that stands in place."""
        if self._in_place:
            self._write(_ERASE)

    def _write(self, text: str) -> None:
        with contextlib.suppress(OSError):  # a terminal that was closed
            self._out.write(text)
            self._out.flush()

    def _tenth_of(self, done: int) -> int:
        return 10 * done // max(1, self._total)


def score_so_far(tallies: Sequence[SuiteTally], by: str) -> str:
    """The mean over all measured rows; "" before the first.

    by: part of the reward; "" = the reward, with its standard error, rows taken as independent.
    """
    n = sum(tally.n for tally in tallies)
    if not n:
        return ""
    if by:
        return f"{by} {math.fsum(tally.parts.get(by, 0.0) for tally in tallies) / n:.3f}"
    mean = math.fsum(tally.mean * tally.n for tally in tallies) / n
    error = math.hypot(*(tally.stderr * tally.n for tally in tallies)) / n
    return f"score {compact(mean)} ± {compact(error)}"


def duration(seconds: float) -> str:
    """A time in the unit that suits it."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    minutes, hours = seconds / 60, seconds / 3600
    return f"{minutes:.0f} min" if minutes < 100 else f"{hours:.1f} h"
