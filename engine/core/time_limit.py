"""A trajectory's wall-clock limit. It stands still while a service is unreachable or full.

An outage is not the policy's fault. If it counted, trajectories would end as timed out and train
the policy as if it had been too slow.
"""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Self


class TimeLimit:
    """Context manager that raises TimeoutError after `seconds`, outages not counted.

    `stop` and `go_on` may be called at any time, also before and after the block.
    """

    def __init__(self, seconds: float, *, spent: float = 0.0) -> None:
        """spent: seconds that have counted before the block."""
        self._seconds = max(0.001, seconds - spent)
        self._before = spent
        self._timeout = asyncio.timeout(None)
        self._inside = False
        self._outages = 0
        self._stopped_at = 0.0
        self._went_on_at = 0.0
        """When the clock last went on. Time before it is never credited again."""
        self._end = 0.0

    async def __aenter__(self) -> Self:
        await self._timeout.__aenter__()
        self._inside = True
        self._went_on_at = self._stopped_at = loop_now()
        self._end = self._went_on_at + self._seconds
        if not self._outages:
            self._timeout.reschedule(self._end)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._inside = False
        await self._timeout.__aexit__(kind, error, traceback)

    @property
    def spent(self) -> float:
        """Seconds that have counted, those before the block included. Only inside the block."""
        at = self._stopped_at if self._outages else loop_now()
        return self._before + self._seconds - (self._end - at)

    def stop(self, since: float) -> None:
        """Stops the clock for an outage that began at `since`, on the event loop's clock. Outages
        may overlap: the clock stops with the first, and no second counts twice."""
        self._outages += 1
        if self._outages == 1 and self._runs:
            self._stopped_at = max(since, self._went_on_at)
            self._timeout.reschedule(None)

    def go_on(self) -> None:
        """Ends one outage."""
        self._outages -= 1
        if self._outages == 0 and self._runs:
            self._went_on_at = loop_now()
            self._end += self._went_on_at - self._stopped_at
            self._timeout.reschedule(self._end)

    @property
    def _runs(self) -> bool:
        return self._inside and not self._timeout.expired()


class Outage:
    """One request's view of an outage. However the request ends, `over` lets the clock go on."""

    def __init__(self, limit: TimeLimit | None) -> None:
        self._limit = limit
        self._since: float | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.over()

    def attach(self, limit: TimeLimit | None) -> None:
        """Sets the clock to stop if there was no clock before. An outage in progress counts from
        its beginning."""
        if self._limit is None and limit is not None:
            self._limit = limit
            if self._since is not None:
                limit.stop(self._since)

    def noticed(self, since: float) -> None:
        """Records that a request sent at `since`, on the event loop's clock, reached no service."""
        if self._since is None:
            self._since = since
            if self._limit is not None:
                self._limit.stop(since)

    def over(self) -> None:
        """Ends the outage: the service has answered, or the request was given up."""
        if self._since is not None:
            self._since = None
            if self._limit is not None:
                self._limit.go_on()


def loop_now() -> float:
    """Time of the running event loop, in seconds."""
    return asyncio.get_running_loop().time()
