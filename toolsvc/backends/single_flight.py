"""Work that several ask for at once is done once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class SingleFlight(Generic[T]):
    """Invariant: work runs as long as a caller waits for it, and no longer. A caller that gives up
    leaves it to the others; the last one stops it, and waits until it has stopped."""

    def __init__(self) -> None:
        self._flights: dict[str, _Flight[T]] = {}

    async def do(self, key: str, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """What the work of this key comes to: joined where it is under way, begun otherwise.
        Raises what the work raises, to all who wait."""
        flight = self._flights.get(key)
        if flight is None:
            flight = self._flights[key] = _Flight(asyncio.create_task(work()))
            flight.task.add_done_callback(lambda _: self._forget(key, flight))
        flight.waiting += 1
        try:
            return await asyncio.shield(flight.task)
        finally:
            flight.waiting -= 1
            if flight.waiting == 0 and not flight.task.done():
                self._forget(key, flight)  # Nobody may join what is being stopped.
                flight.task.cancel()
                await asyncio.wait((flight.task,))

    def _forget(self, key: str, flight: _Flight[T]) -> None:
        if self._flights.get(key) is flight:
            del self._flights[key]


class _Flight(Generic[T]):
    __slots__ = ("task", "waiting")

    def __init__(self, task: asyncio.Task[T]) -> None:
        self.task = task
        self.waiting = 0
