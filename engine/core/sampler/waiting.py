"""Time that an action spends waiting through no fault of the policy: the trajectory's clock stops.

It stops while no sampler is up, while a publish pauses the action's server, while a stream is
quiet, and from the last token of a stream that broke to the first one of the next.
"""

from __future__ import annotations

import asyncio
from enum import Enum, auto
from typing import Protocol


class Clock(Protocol):
    """A trajectory's wall-clock limit, which can be stopped."""

    def stop(self, since: float) -> None:
        """The limit stands still from `since` on, on the event loop's clock."""
        ...

    def go_on(self) -> None:
        """The end of one `stop`."""
        ...


class Cause(Enum):
    """Why an action waits."""

    NO_SAMPLER = auto()
    PAUSED = auto()
    QUIET = auto()
    BROKEN = auto()


class Waiting:
    """One action's causes to wait. The clock stops with the first and goes on after the last; no
    second is given back twice."""

    def __init__(self, clock: Clock | None) -> None:
        self._clock = clock
        self._went_on = float("-inf")
        self._causes: set[Cause] = set()

    def __bool__(self) -> bool:
        return bool(self._causes)

    def begin(self, cause: Cause, since: float) -> None:
        """`since` on the event loop's clock."""
        if self._clock is not None and not self._causes:
            self._clock.stop(max(since, self._went_on))
        self._causes.add(cause)

    def end(self, *causes: Cause) -> None:
        """These causes are over; every cause where none is named."""
        if not self._causes:
            return
        self._causes.difference_update(causes or tuple(Cause))
        if self._clock is not None and not self._causes:
            self._went_on = asyncio.get_running_loop().time()
            self._clock.go_on()
