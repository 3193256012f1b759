"""Time that an action waits through no fault of the policy: the trajectory's clock stops.

The clock stops in four cases: no sampler is up, a publish pauses the action's server, a stream is
quiet, or a stream broke and the next one has not brought its first token.
"""

from __future__ import annotations

import asyncio
from enum import Enum, auto
from typing import Protocol


class Clock(Protocol):
    """A trajectory's wall-clock limit that can be stopped."""

    def stop(self, since: float) -> None:
        """Stops the limit from `since` on, on the event loop's clock."""
        ...

    def go_on(self) -> None:
        """Ends one `stop`."""
        ...


class WaitCause(Enum):
    """Why an action waits."""

    NO_SAMPLER = auto()
    PAUSED = auto()
    QUIET = auto()
    BROKEN = auto()


class Waiting:
    """One action's causes to wait. The clock stops with the first and goes on after the last. No
    second is credited twice."""

    def __init__(self, clock: Clock | None) -> None:
        self._clock = clock
        self._went_on = float("-inf")
        self._causes: set[WaitCause] = set()

    def __bool__(self) -> bool:
        return bool(self._causes)

    def begin(self, cause: WaitCause, since: float) -> None:
        """Begins a cause at `since`, on the event loop's clock."""
        if self._clock is not None and not self._causes:
            self._clock.stop(max(since, self._went_on))
        self._causes.add(cause)

    def end(self, *causes: WaitCause) -> None:
        """Ends these causes, or every cause if none is named."""
        if not self._causes:
            return
        self._causes.difference_update(causes or tuple(WaitCause))
        if self._clock is not None and not self._causes:
            self._went_on = asyncio.get_running_loop().time()
            self._clock.go_on()
