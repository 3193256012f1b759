"""The places of one group, which the coordinator grants.

The coordinator requests the places of a new group together with the group, so members wait for one
message alone. What a group still holds at its end, the coordinator takes back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import TracebackType


class GroupPlaces:
    """`async with` takes one place for a member."""

    def __init__(self, requested: int, changed: Callable[[int, int], None]) -> None:
        """requested: places that the coordinator has requested. changed: reports (freed, wanted)
        places."""
        self._requested = requested
        self._changed = changed
        self._granted = 0
        self._free = asyncio.Semaphore(0)

    async def __aenter__(self) -> None:
        if self._requested:
            self._requested -= 1
        else:
            self._changed(0, 1)
        await self._free.acquire()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._changed(1, 0)

    def grant(self, granted: int) -> None:
        """The coordinator has granted so many places to the group since its begin."""
        for _ in range(granted - self._granted):
            self._free.release()
        self._granted = max(self._granted, granted)
