"""How far an evaluation is: one line, for a terminal every second, for a file every tenth and every
minute in which there was none. Pure but for the stream that is written to."""

from __future__ import annotations

import contextlib
import math
import shutil
import time
from collections.abc import Callable, Sequence
from typing import TextIO

from engine.serving.evaluation.tally import Tally
from engine.serving.telemetry.logs import tell
from toolwright.text.figures import compact

SECONDS = 1.0
"""Between two looks."""
QUIET_SECONDS = 60.0
"""Without a line, after which a file gets one."""
_ERASE = "\r\x1b[2K"


class Progress:
    """Knows how much was done when it began, so that the pace is that of this life."""

    def __init__(
        self,
        asked: int,
        done: int,
        out: TextIO,
        *,
        words: str = "questions",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """asked, done: of `words`. clock: seconds."""
        self._words = words
        self._asked = asked
        self._before = done
        self._out = out
        self._clock = clock
        self._began = self._told = clock()
        self._moves = out.isatty()
        self._tenth = self._tenth_of(done)

    def line(self, done: int, tallies: Sequence[Tally], by: str, state: str) -> str:
        """done: rows that are over. state: a few words."""
        seconds = self._clock() - self._began
        pace = (done - self._before) / seconds if seconds > 0 else 0.0
        parts = [
            f"[{seconds:6.0f} s] {done:,}/{self._asked:,} {self._words}",
            *score_so_far(tallies, by),
            f"{pace:.1f}/s",
            f"{duration((self._asked - done) / pace)} left" if pace else "",
            state,
        ]
        return ", ".join(part for part in parts if part)

    def show(self, done: int, tallies: Sequence[Tally], by: str, state: str) -> None:
        """In place on a terminal; elsewhere at another tenth, and after a silent minute."""
        if self._moves:
            width = shutil.get_terminal_size().columns - 1
            self._put(_ERASE + self.line(done, tallies, by, state)[:width])
            return
        now, tenth = self._clock(), self._tenth_of(done)
        if tenth > self._tenth or now - self._told >= QUIET_SECONDS:
            self._tenth, self._told = tenth, now
            tell(self.line(done, tallies, by, state), self._out)

    def end(self) -> None:
        """The line in place goes away."""
        if self._moves:
            self._put(_ERASE)

    def _put(self, text: str) -> None:
        with contextlib.suppress(OSError):  # a terminal that was closed
            self._out.write(text)
            self._out.flush()

    def _tenth_of(self, done: int) -> int:
        return 10 * done // max(1, self._asked)


def score_so_far(tallies: Sequence[Tally], by: str) -> list[str]:
    """The mean over all measured rows; the reward's with its standard error, rows taken as
    independent. Empty before the first."""
    n = sum(tally.n for tally in tallies)
    if not n:
        return []
    if by:
        return [f"{by} {math.fsum(tally.parts.get(by, 0.0) for tally in tallies) / n:.3f}"]
    mean = math.fsum(tally.mean * tally.n for tally in tallies) / n
    error = math.hypot(*(tally.stderr * tally.n for tally in tallies)) / n
    return [f"score {compact(mean)} ± {compact(error)}"]


def duration(seconds: float) -> str:
    """In the unit that people would take."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    minutes, hours = seconds / 60, seconds / 3600
    return f"{minutes:.0f} min" if minutes < 100 else f"{hours:.1f} h"
