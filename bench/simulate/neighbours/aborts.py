"""Requests whose stream is gone: whether the engine sends an abort of each."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from bench.history.events import Abandoned
from bench.simulate.virtual.loop import loop_here

ABORT_S = 5.0
"""Longest time from the end of a broken stream to the abort of its request, in seconds."""

LIFE = 16
"""Characters that begin all ids of one life of an engine or worker."""


class AbortWatch:
    """Watches one server's requests."""

    def __init__(self, server: str, see: Callable[[Abandoned], None]) -> None:
        self._server = server
        self._see = see
        self._sent: set[str] = set()
        self._waiting: dict[str, tuple[str, asyncio.TimerHandle]] = {}
        """Request to its attempt, and the end of its time."""

    def sent(self, request: str) -> None:
        """The engine sent an abort, even if its connection breaks. request: an id, or the word that
        begins the ids of a dead worker."""
        self._sent.add(request)
        for one in [one for one in self._waiting if one.startswith(request)]:
            self._over(one, aborted=True)

    def lost(self, request: str, attempt: str) -> None:
        """The stream of a request is gone, and its client lives."""
        loop = loop_here()
        late = loop.time() + ABORT_S
        timer = loop.call_at(late, lambda: self._over(request, aborted=False), context=loop.world)
        self._waiting[request] = attempt, timer
        if request in self._sent or request[:LIFE] in self._sent:
            self._over(request, aborted=True)

    def forget(self) -> None:
        """No abort has to come any more."""
        for _, timer in self._waiting.values():
            timer.cancel()
        self._waiting.clear()

    def _over(self, request: str, *, aborted: bool) -> None:
        attempt, timer = self._waiting.pop(request)
        timer.cancel()
        now = loop_here().time()
        self._see(Abandoned(at=now, server=self._server, attempt=attempt, aborted=aborted))
