"""A trajectory's wall-clock limit, which stands still while a tool service is out of reach.

That time is no doing of the policy's: counted, an outage would end trajectories as timed out, and
they would be trained on as if the policy had been too slow.
"""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Self


class TimeLimit:
    """`async with` it: TimeoutError once `seconds` have passed, outages not counted."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._timeout = asyncio.timeout(None)
        self._outages = 0
        self._began = 0.0
        self._end = 0.0

    async def __aenter__(self) -> Self:
        await self._timeout.__aenter__()
        self._end = _now() + self._seconds
        self._timeout.reschedule(self._end)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._timeout.__aexit__(kind, error, traceback)

    def stop(self, since: float) -> None:
        """An outage is noticed that began at `since`, on the event loop's clock. Outages may
        overlap; the first one's beginning counts."""
        self._outages += 1
        if self._outages == 1 and not self._timeout.expired():
            self._began = since
            self._timeout.reschedule(None)

    def go_on(self) -> None:
        """One outage is over."""
        self._outages -= 1
        if self._outages == 0 and self._timeout.when() is None:
            self._end += _now() - self._began
            self._timeout.reschedule(self._end)


class Outage:
    """One call's share in it: `with` it, whatever comes of the call the clock goes on."""

    def __init__(self, limit: TimeLimit | None) -> None:
        self._limit = limit
        self._noticed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.over()

    def noticed(self, since: float) -> None:
        """What was sent at `since`, on the event loop's clock, reached nobody."""
        if self._limit is not None and not self._noticed:
            self._noticed = True
            self._limit.stop(since)

    def over(self) -> None:
        """The service has answered, or nobody waits for it any more."""
        if self._limit is not None and self._noticed:
            self._noticed = False
            self._limit.go_on()


def _now() -> float:
    return asyncio.get_running_loop().time()
