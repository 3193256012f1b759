"""Lets the calls of one session to one tool through, one at a time or several at once."""

from __future__ import annotations

import asyncio
from collections import deque

from toolsvc.errors import RETRY_SECONDS, Reason, Refused

WAITING_CALLS = 32
"""Calls of one session that may wait for one tool."""
PARALLEL_CALLS = 64
"""Calls of one session that may run at once in a tool with parallel calls."""


class Turnstile:
    """Lets one call at a time through, in order; several where `parallel`."""

    def __init__(self, parallel: bool) -> None:
        self._most = PARALLEL_CALLS if parallel else 1
        self._inside = 0
        self._waiting: deque[asyncio.Future[None]] = deque()

    def try_enter(self) -> bool:
        if self._inside >= self._most:
            return False
        self._inside += 1
        return True

    @property
    def busy(self) -> bool:
        """A call is inside, though its answer may be out, where only one may be."""
        return self._most == 1 and self._inside > 0

    async def enter(self) -> None:
        """Waits; cancelling gives the place up."""
        if self.try_enter():
            return
        if len(self._waiting) >= WAITING_CALLS:
            raise Refused(
                Reason.SESSION_BUSY,
                f"{WAITING_CALLS} calls of this session wait already",
                retry_after=RETRY_SECONDS,
                fix="ask for their results first",
            )
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn in self._waiting:
                self._waiting.remove(turn)
            elif not turn.cancelled():
                self.leave()
            raise

    def leave(self) -> None:
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self._inside -= 1
