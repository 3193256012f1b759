"""How long to wait before a dead host's slot is filled again: pure arithmetic."""

from __future__ import annotations

FIRST_SECONDS = 0.2
LONGEST_SECONDS = 30.0
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
        pause = min(LONGEST_SECONDS, FIRST_SECONDS * 2.0 ** min(self._deaths, 16))
        self._deaths += 1
        return pause
