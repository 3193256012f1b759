"""The places of one group, whichever worker has it.

Invariants
- A place is held from its grant until the worker frees it, or `close`.
- A group whose worker died keeps a place for each member that has not ended. Otherwise other groups
  would take them and wait for tool sessions, while this group keeps its sessions and waits for
  places.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from engine.serving.admission.places import Places
from engine.serving.journal.logs import OpenLog


class PlaceGrants:
    """Waits for places in the background. Close it once the group is over."""

    def __init__(self, places: Places) -> None:
        self._places = places
        self._send: Callable[[], None] = lambda: None
        self.held = 0
        self.granted = 0
        """Number of places that the present worker has been granted since it got the group."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._waiting: set[asyncio.Task[None]] = set()
        self._freed = asyncio.Semaphore(0)

    def requested(self, size: int, logs: Mapping[str, OpenLog]) -> int:
        """Places that the next worker gets, or will get, with a group of `size` members. Frees
        those of members that have ended. logs: durable ones of the members, by trajectory."""
        unended = size - sum(one.ended for one in logs.values())
        self.free(max(0, self.held - unended))
        return self.held if logs else unended

    def begin(self, send: Callable[[], None]) -> None:
        """The group goes to a worker, with the places that it holds. send: sends it `granted`."""
        self.granted = self.held
        self._send = send
        if self.held:
            send()

    def want(self, places: int) -> None:
        """Waits for so many places, and grants them to the worker."""
        for _ in range(places):
            task = asyncio.get_running_loop().create_task(self._hold())
            self._tasks.add(task)
            self._waiting.add(task)
            task.add_done_callback(self._tasks.discard)

    def free(self, places: int) -> None:
        """Gives places back: the worker did, or no member needs them."""
        self.held -= places
        for _ in range(places):
            self._freed.release()

    async def withdraw(self) -> None:
        """Waits for no further places. The next worker says which ones it needs."""
        await _cancel(self._waiting)
        self._waiting.clear()

    async def close(self) -> None:
        """Gives all places back."""
        await _cancel(self._tasks)

    async def _hold(self) -> None:
        task = asyncio.current_task()
        async with self._places:
            if task is not None:
                self._waiting.discard(task)
            self.held += 1
            self.granted += 1
            self._send()
            await self._freed.acquire()


async def _cancel(tasks: set[asyncio.Task[None]]) -> None:
    found = list(tasks)
    for task in found:
        task.cancel()
    await asyncio.gather(*found, return_exceptions=True)
