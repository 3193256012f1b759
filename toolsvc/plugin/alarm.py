"""A cheap timer for calls, most of which end in the event loop's next iteration. To set a timer of
the loop would be a good part of their cost.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class Alarm:
    """Calls `ring` once, `seconds` after the event loop's next iteration, unless cancelled.

    A timer is set in that iteration, and not at all if the alarm was cancelled by then.
    """

    __slots__ = ("_handle", "_loop", "_ring", "_seconds")

    def __init__(self, seconds: float, ring: Callable[[], object]) -> None:
        self._loop = asyncio.get_running_loop()
        self._seconds = seconds
        self._ring = ring
        self._handle: asyncio.Handle = self._loop.call_soon(self._set)

    def cancel(self) -> None:
        self._handle.cancel()

    def _set(self) -> None:
        self._handle = self._loop.call_later(self._seconds, self._ring)
