"""Time that an action waits through no fault of the policy: the trajectory's clock stops.

The clock stops in five cases: no sampler is up, a publish pauses the action's server, a stream is
quiet, a stream broke, or the samplers' caches have no room. After a break it goes on with the first
token of the next stream.
"""

from __future__ import annotations

from enum import Enum, auto

from engine.core.time_limit import Outage, TimeLimit


class WaitCause(Enum):
    """Why an action waits."""

    NO_SAMPLER = auto()
    PAUSED = auto()
    QUIET = auto()
    BROKEN = auto()
    CACHE = auto()


class Waiting(Outage):
    """One action's causes to wait. The clock stops with the first and goes on after the last."""

    def __init__(self, limit: TimeLimit | None) -> None:
        super().__init__(limit)
        self._causes: set[WaitCause] = set()

    def __bool__(self) -> bool:
        return bool(self._causes)

    def begin(self, cause: WaitCause, since: float) -> None:
        """Begins a cause at `since`, on the event loop's clock."""
        self._causes.add(cause)
        self.noticed(since)

    def end(self, *causes: WaitCause) -> None:
        """Ends these causes, or every cause if none is named."""
        self._causes.difference_update(causes or tuple(WaitCause))
        if not self._causes:
            self.over()
