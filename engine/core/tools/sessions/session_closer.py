"""Sessions of one service that are to be closed, each after its calls, a bounded number at a time.

Invariants
- What was added is sent once, whatever becomes of what was added before it.
- There are at most `MOST_AT_ONCE` tasks, and none while nothing is to be closed.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable

MOST_AT_ONCE = 32
LAST_SECONDS = 30.0
"""For all closes together when the engine ends. A session that is still open then is reaped when
its lease ends."""


class Closer:
    """Whoever adds something does not wait for it."""

    def __init__(self) -> None:
        self._works: deque[Callable[[], Awaitable[None]]] = deque()
        self._workers: set[asyncio.Task[None]] = set()

    def add(self, work: Callable[[], Awaitable[None]]) -> None:
        """`work` must not raise."""
        self._works.append(work)
        if len(self._workers) < MOST_AT_ONCE:
            worker = asyncio.get_running_loop().create_task(self._run())
            self._workers.add(worker)
            worker.add_done_callback(self._workers.discard)

    async def drain(self) -> None:
        """Returns when all is done, or `LAST_SECONDS` have passed."""
        if not self._workers:
            return
        _, late = await asyncio.wait(self._workers, timeout=LAST_SECONDS)
        for worker in late:
            worker.cancel()
        await asyncio.gather(*late, return_exceptions=True)

    async def _run(self) -> None:
        while self._works:
            await self._works.popleft()()
