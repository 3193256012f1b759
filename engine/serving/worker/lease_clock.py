"""How long a worker may work, by its own monotonic clock.

The coordinator grants seconds from the moment at which the worker sent a beat. So a worker that was
stopped, or cut off, knows by itself that its work may be at another worker by now.

Invariant: after the end of the lease no request leaves for a sampler or a tool service.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable

FIRST_S = 10.0
"""Lease of a worker that begins to take work: its first beat needs an answer in that time."""


class LeaseClock:
    """The lease of this process."""

    def __init__(
        self, on_end: Callable[[], None], now: Callable[[], float] = lambda: time.monotonic()
    ) -> None:
        """on_end: ends the process; called by `check` and must not return normally."""
        self._on_end = on_end
        self._now = now
        self._ends = math.inf
        self._sent: dict[int, float] = {}
        self._beats = 0

    def begin(self) -> None:
        """The worker takes work from here on. Before that it has no lease: nothing is assigned."""
        self._ends = self._now() + FIRST_S

    def beat(self) -> int:
        """Number of a beat that is sent now."""
        self._beats += 1
        self._sent[self._beats] = self._now()
        return self._beats

    def granted(self, beat: int, seconds: float) -> None:
        """The coordinator answered a beat. Earlier beats need no answer any more."""
        sent = self._sent.get(beat)
        if sent is None:
            return
        if self._ends < math.inf:
            self._ends = max(self._ends, sent + seconds)
        self._sent = {number: at for number, at in self._sent.items() if number > beat}

    def check(self) -> None:
        """Returns while the lease lasts. Call it before each request that has an effect."""
        if self._now() > self._ends:
            self._on_end()
