"""A trajectory's wall-clock limit, which stands still while a service is out of reach or full.

That time is no doing of the policy's: counted, an outage would end trajectories as timed out, and
they would be trained on as if the policy had been too slow.
"""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Self


class TimeLimit:
    """`async with` it: TimeoutError once `seconds` have passed, outages not counted.

    `stop` and `go_on` may come at any time, also before and after.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._timeout = asyncio.timeout(None)
        self._inside = False
        self._outages = 0
        self._stopped_at = 0.0
        self._went_on_at = 0.0
        """When the clock last went on: no second before that is given back again."""
        self._end = 0.0

    async def __aenter__(self) -> Self:
        await self._timeout.__aenter__()
        self._inside = True
        self._went_on_at = self._stopped_at = _now()
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

    def stop(self, since: float) -> None:
        """An outage that began at `since`, on the event loop's clock, is noticed. Outages may
        overlap: the clock stops with the first, and no second counts twice."""
        self._outages += 1
        if self._outages == 1 and self._runs:
            self._stopped_at = max(since, self._went_on_at)
            self._timeout.reschedule(None)

    def go_on(self) -> None:
        """One outage is over."""
        self._outages -= 1
        if self._outages == 0 and self._runs:
            self._went_on_at = _now()
            self._end += self._went_on_at - self._stopped_at
            self._timeout.reschedule(self._end)

    @property
    def _runs(self) -> bool:
        return self._inside and not self._timeout.expired()


class Outage:
    """An outage as one request meets it. Whatever comes of the request, `over` lets the clock go
    on."""

    def __init__(self, limit: TimeLimit | None) -> None:
        self._limit = limit
        self._since: float | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.over()

    def tell(self, limit: TimeLimit | None) -> None:
        """Names the clock to stop, where none was known before. An outage that is under way counts
        from its beginning."""
        if self._limit is None and limit is not None:
            self._limit = limit
            if self._since is not None:
                limit.stop(self._since)

    def noticed(self, since: float) -> None:
        """What was sent at `since`, on the event loop's clock, reached nobody."""
        if self._since is None:
            self._since = since
            if self._limit is not None:
                self._limit.stop(since)

    def over(self) -> None:
        """The service has answered, or nobody waits for it any more."""
        if self._since is not None:
            self._since = None
            if self._limit is not None:
                self._limit.go_on()


def _now() -> float:
    return asyncio.get_running_loop().time()
