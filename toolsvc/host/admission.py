"""Who may start now: bounds calls that are starting, never calls that sleep.

A call holds a permit until it ends, for `HOLD_SECONDS` at most. So a burst does not set a
thousand processes running at one instant, and calls that sleep do not keep others waiting: a core
admits at least PERMITS_PER_CORE / HOLD_SECONDS = 4,000 calls a second, more than it can take in
over gRPC. Permits are handed on in the order of asking.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections import deque

from toolsvc.errors import RETRY_SECONDS, Reason, Refused

HOLD_SECONDS = 0.001
PERMITS_PER_CORE = 4
WAITING_CALLS = 16_384
"""Of all sessions: sixteen times the sessions of a service by default. At the slowest they have all
started after a few seconds."""


class Permit:
    """Leave to start. `release` may be called more than once."""

    __slots__ = ("_gate", "expires_at", "held")

    def __init__(self, gate: Gate, *, held: bool = True) -> None:
        """`held`: it takes one of the gate's places."""
        self._gate = gate
        self.expires_at = time.monotonic() + HOLD_SECONDS
        self.held = held

    def release(self) -> None:
        if self.held:
            self.held = False
            self._gate.leave()


class Gate:
    """At most `permits` calls are starting at once.

    Permits expire in the order of giving, and only where somebody asks for one: a gate that is
    not full needs no timer.
    """

    def __init__(self, permits: int | None = None) -> None:
        self.permits = permits or PERMITS_PER_CORE * (os.cpu_count() or 1)
        self._free = self.permits
        self._given: deque[Permit] = deque()
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._timer: asyncio.TimerHandle | None = None

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    def try_enter(self) -> Permit | None:
        """A permit if one is free."""
        self._expire()
        if self._free <= 0:
            return None
        self._free -= 1
        return self._give()

    def pass_by(self) -> Permit:
        """A permit that takes no place, for a call that bounds its start by itself."""
        return Permit(self, held=False)

    async def enter(self) -> Permit:
        """Waits for a permit. Cancelling gives the place up. Refused where too many wait."""
        permit = self.try_enter()
        if permit is not None:
            return permit
        if len(self._waiting) >= WAITING_CALLS:
            raise Refused(
                Reason.QUEUE_LIMIT,
                f"{WAITING_CALLS} calls wait for leave to start",
                retry_after=RETRY_SECONDS,
                fix="send fewer calls at once, or serve with more --workers",
            )
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        self._watch_the_oldest()
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.leave()
            raise
        return self._give()

    def leave(self) -> None:
        """Hands a permit on."""
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self._free += 1

    def _give(self) -> Permit:
        permit = Permit(self)
        self._given.append(permit)
        if self._waiting:
            self._watch_the_oldest()
        return permit

    def _expire(self) -> None:
        """Takes back what was held for long enough, forgets what was given back."""
        given = self._given
        if not given:
            return
        now = time.monotonic()
        while given and (not given[0].held or given[0].expires_at <= now):
            given.popleft().release()

    def _watch_the_oldest(self) -> None:
        if self._timer is None and self._given:
            loop = asyncio.get_running_loop()
            pause = max(0.0, self._given[0].expires_at - time.monotonic())
            self._timer = loop.call_later(pause, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self._expire()
        if self._waiting:  # those whose turn has come by now watch when they wake
            self._watch_the_oldest()
