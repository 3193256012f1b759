"""A line for people every few seconds: state, step, in flight, tokens a second, reward."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import TextIO

from engine.serving.telemetry.logs import print_line
from toolwright.text.figures import compact


class EngineProgress:
    """The progress line. It knows its start and the tokens of the last line."""

    def __init__(
        self,
        steps: int,
        out: TextIO = sys.stderr,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._steps = steps
        self._out = out
        self._clock = clock
        self._began = clock()
        self._last = (self._began, 0)

    def line(
        self,
        *,
        state: str,
        step: int,
        running: int,
        evaluating: int,
        waiting: int,
        turned_away: int,
        tokens: int,
        reward: float,
        limit: int = 0,
        paused: int = 0,
    ) -> str:
        """tokens: all tokens that samplers have sent since the start, including unfinished
        trajectories. waiting, turned_away: groups. limit: of trajectories in flight if it
        adapts, else 0. paused: those that wait for the samplers' cache."""
        now = self._clock()
        then, before = self._last
        rate = max(tokens - before, 0) / max(now - then, 1e-9)
        self._last = (now, tokens)
        parts = [
            f"[{now - self._began:6.0f} s] {state:10s} version {step}/{self._steps}",
            f"{running} in flight" + (f" of {limit}" if limit else ""),
            f"{waiting} groups waiting",
            f"{rate:,.0f} tokens/s",
            f"reward {compact(reward)}",
        ]
        if paused:
            parts.append(f"{paused} waiting for cache")
        if turned_away:
            parts.append(f"{turned_away} groups discarded")
        if evaluating:
            parts.append(f"{evaluating} evaluating")
        return ", ".join(parts)

    def show(self, line: str) -> None:
        """Prints a line. A full disk does not end the run."""
        print_line(line, self._out)
