"""Closes sessions of one service, each after its calls, a bounded number at a time.

Invariants
- Every added close is sent once, whatever becomes of earlier ones.
- There are at most `MOST_AT_ONCE` tasks, and no task while nothing is due.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable

MOST_AT_ONCE = 32
LAST_SECONDS = 30.0
"""Time for all closes together when the engine ends. The end of its lease reaps a session that is
still open then."""


class SessionCloser:
    """Runs closes in the background; callers do not wait."""

    def __init__(self) -> None:
        self._works: deque[Callable[[], Awaitable[None]]] = deque()
        self._workers: set[asyncio.Task[None]] = set()

    def add(self, work: Callable[[], Awaitable[None]]) -> None:
        """Adds a close. `work` must not raise."""
        self._works.append(work)
        if len(self._workers) < MOST_AT_ONCE:
            worker = asyncio.get_running_loop().create_task(self._run())
            self._workers.add(worker)
            worker.add_done_callback(self._workers.discard)

    async def drain(self) -> None:
        """Returns when all closes are done, or after `LAST_SECONDS`."""
        if not self._workers:
            return
        _, late = await asyncio.wait(self._workers, timeout=LAST_SECONDS)
        for worker in late:
            worker.cancel()
        await asyncio.gather(*late, return_exceptions=True)

    async def _run(self) -> None:
        while self._works:
            await self._works.popleft()()
