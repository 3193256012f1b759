"""How long to wait before a dead host's slot is filled again: pure arithmetic."""

from __future__ import annotations

from toolwright.process.backoff import Backoff

BACKOFF = Backoff(0.2, 30.0, jitter=False)
STEADY_SECONDS = 60.0
"""A host that lived this long was no part of a crash loop."""


class Restarts:
    """Of one slot. Pauses double from death to death, until a host has lived for a while."""

    def __init__(self) -> None:
        self._deaths = 0

    def pause(self, lived: float) -> float:
        """Seconds to wait, after a host that lived for `lived` seconds has died."""
        if lived >= STEADY_SECONDS:
            self._deaths = 0
        pause = BACKOFF.pause(self._deaths)
        self._deaths += 1
        return pause
