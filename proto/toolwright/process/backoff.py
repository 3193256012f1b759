"""How long to wait before a retry: pauses that double. Pure, but for the draw."""

from __future__ import annotations

import random
from dataclasses import dataclass

_MOST_DOUBLINGS = 60


@dataclass(frozen=True, slots=True)
class Backoff:
    """Pauses from `first` to `longest`, in seconds. jitter: whether each pause has a random factor
    from 0.5 to 1. Clients that failed together then return at different times."""

    first: float
    longest: float
    jitter: bool = True

    def pause(self, tries: int) -> float:
        """Seconds after the failure of try number `tries`, from 0."""
        pause = min(self.longest, self.first * 2.0 ** min(max(tries, 0), _MOST_DOUBLINGS))
        return pause * random.uniform(0.5, 1.0) if self.jitter else pause
