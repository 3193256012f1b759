"""Who may start now: bounds calls that are starting, never calls that sleep.

A call holds a permit for its first `HOLD_SECONDS` or until it ends, whichever is sooner: enough
to keep a burst from starting a thousand processes at once, short enough that a thousand
sleeping calls do not wait for each other. Permits are handed on in the order of asking.
"""

from __future__ import annotations

import asyncio
import os
from collections import deque

HOLD_SECONDS = 0.02
PERMITS_PER_CORE = 4


class Permit:
    """Leave to start. `release` may be called more than once."""

    __slots__ = ("_gate", "_timer")

    def __init__(self, gate: Gate) -> None:
        self._gate: Gate | None = gate
        self._timer = asyncio.get_running_loop().call_later(HOLD_SECONDS, self.release)

    def release(self) -> None:
        gate, self._gate = self._gate, None
        if gate is not None:
            self._timer.cancel()
            gate.leave()


class Gate:
    """At most `permits` calls are starting at once."""

    def __init__(self, permits: int | None = None) -> None:
        self.permits = permits or PERMITS_PER_CORE * (os.cpu_count() or 1)
        self._free = self.permits
        self._waiting: deque[asyncio.Future[None]] = deque()

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    def try_enter(self) -> Permit | None:
        """A permit if one is free."""
        if self._free <= 0:
            return None
        self._free -= 1
        return Permit(self)

    async def enter(self) -> Permit:
        """Waits for a permit. Cancelling gives the place up."""
        permit = self.try_enter()
        if permit is not None:
            return permit
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.leave()
            raise
        return Permit(self)

    def leave(self) -> None:
        """Hands a permit on."""
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self._free += 1
