"""Lives of workers that start agents themselves. The agents of a life end with it.

A life is over when a later one of the same worker is there. A life that is silent for `LEASE_S` has
lost its attempts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

LEASE_S = 60.0
"""Longest silence of a life, in seconds."""
GRACE_S = 5.0
"""Added to it, in seconds: requests that wait while the loop is busy count."""
_MARK = "/~"
"""Between worker and life."""


class LifeOver(Exception):
    """Another process has taken the worker's place."""


def taker(worker: str, life: str, number: int) -> str:
    """Name of a request for an attempt. life: "" for a worker whose agents do not depend on it."""
    return f"{holder(worker, life)}/{number}"


def holder(worker: str, life: str) -> str:
    """Name of a life, or of a worker without lives."""
    return f"{worker}{_MARK}{life}" if life else worker


def holder_of(name: str) -> str:
    """The holder of a taker."""
    return name.rpartition("/")[0]


class WorkerLives:
    """The lives that are known. lost: called with a holder whose attempts are to be given up."""

    def __init__(self, lost: Callable[[str], None]) -> None:
        self._lost = lost
        self._newest: dict[str, str] = {}
        """Holder by worker."""
        self._over: set[str] = set()
        self._timers: dict[str, asyncio.TimerHandle] = {}

    def seen(self, worker: str, life: str) -> None:
        """A life sent a request. Earlier ones of its worker are over. Raises LifeOver."""
        if not life:
            return
        name = holder(worker, life)
        if name in self._over:
            raise LifeOver(f"a later process is the worker {worker!r}: name this one otherwise")
        earlier = self._newest.get(worker)
        self._newest[worker] = name
        self._arm(name)
        if earlier not in (None, name):
            self._over.add(earlier)
            self._disarm(earlier)
            self._lost(earlier)

    def holds(self, name: str) -> bool:
        """Whether a taker's life may go on with an attempt; its lease begins if it has not."""
        found = holder_of(name)
        worker, mark, _life = found.rpartition(_MARK)
        if not mark:
            return True
        if self._newest.setdefault(worker, found) != found:
            return False
        if found not in self._timers:
            self._arm(found)
        return True

    def _arm(self, name: str) -> None:
        self._disarm(name)
        loop = asyncio.get_running_loop()
        self._timers[name] = loop.call_later(LEASE_S, self._late, name)

    def _late(self, name: str) -> None:
        loop = asyncio.get_running_loop()
        self._timers[name] = loop.call_later(GRACE_S, self._silent, name)

    def _silent(self, name: str) -> None:
        self._disarm(name)
        self._lost(name)

    def _disarm(self, name: str) -> None:
        if (timer := self._timers.pop(name, None)) is not None:
            timer.cancel()
