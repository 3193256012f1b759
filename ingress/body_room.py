"""Room for the bodies of calls in flight: a worker's memory is bounded, however many agents call.

Invariants
- The bodies in hand have at most `most` bytes together, or one body alone has more.
- Requests get room in the order of their arrival. No request is refused for want of room.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class BodyRoom:
    """Room in bytes."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._waiting = deque[tuple[int, asyncio.Event]]()
        self.in_hand = 0
        """Bytes of the bodies that have room."""

    @asynccontextmanager
    async def of(self, size: int) -> AsyncIterator[None]:
        """Room for a body of `size` bytes, as long as the block runs."""
        entry = size, asyncio.Event()
        self._waiting.append(entry)
        self._serve()
        try:
            await entry[1].wait()
            yield
        finally:
            if entry in self._waiting:
                self._waiting.remove(entry)
            else:
                self.in_hand -= size
            self._serve()

    def _serve(self) -> None:
        while self._waiting:
            size, turn = self._waiting[0]
            if self.in_hand and self.in_hand + size > self._most:
                return
            self._waiting.popleft()
            self.in_hand += size
            turn.set()
