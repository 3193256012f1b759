"""A line for people every few seconds: state, step, in flight, tokens a second, reward."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import TextIO

from engine.serving.telemetry.logs import tell
from toolwright.text.figures import compact


class Progress:
    """Knows when it began and how many tokens it told of last."""

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
    ) -> str:
        """tokens: all that samplers have sent since the start, unfinished trajectories included.
        waiting, turned_away: groups."""
        now = self._clock()
        then, before = self._last
        rate = max(tokens - before, 0) / max(now - then, 1e-9)
        self._last = (now, tokens)
        parts = [
            f"[{now - self._began:6.0f} s] {state:10s} version {step}/{self._steps}",
            f"{running} in flight",
            f"{waiting} groups waiting",
            f"{rate:,.0f} tokens/s",
            f"reward {compact(reward)}",
        ]
        if turned_away:
            parts.append(f"{turned_away} groups turned away")
        if evaluating:
            parts.append(f"{evaluating} evaluating")
        return ", ".join(parts)

    def show(self, line: str) -> None:
        """A full disk under the output ends no run."""
        tell(line, self._out)
