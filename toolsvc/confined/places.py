"""Whose job is next; no I/O but a clock's.

Invariants
- At most `count` jobs are quick, and as many more are slow. A job is quick at first; one that takes
  longer than QUICK_SECONDS is slow from then on, as soon as fewer than `count` are. So large jobs
  do not keep small ones waiting, unless there are twice as many large ones as places.
- Of those that wait the next is of the caller with the fewest places; of several, who came first.
- A place that was taken is left once, by its holder.
"""

from __future__ import annotations

import asyncio
from collections import Counter

from toolsvc.confined.errors import PoolFull

QUICK_SECONDS = 0.5


class Place:
    __slots__ = ("alarm", "caller", "ready")

    def __init__(self, caller: str) -> None:
        self.caller = caller
        self.ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.alarm: asyncio.TimerHandle | None = None


class Places:
    def __init__(self, count: int) -> None:
        self._count = count
        self._waiting: list[Place] = []
        self._quick: list[Place] = []
        self._long: list[Place] = []
        """Those of the quick that are so only for want of a slow place, by age."""
        self._slow: list[Place] = []
        self._of_caller: Counter[str] = Counter()

    @property
    def busy(self) -> int:
        return len(self._quick) + len(self._slow)

    async def take(self, caller: str, patience: float) -> Place:
        """Raises PoolFull if none was free for `patience` seconds."""
        place = Place(caller)
        self._waiting.append(place)
        self._admit()
        try:
            async with asyncio.timeout(patience):
                await place.ready
        except BaseException as error:
            if place in self._waiting:
                self._waiting.remove(place)
            else:
                self.leave(place)
            if isinstance(error, TimeoutError):
                raise PoolFull(f"no process was free for {patience:g} s") from None
            raise
        return place

    def leave(self, place: Place) -> None:
        if place.alarm is not None:
            place.alarm.cancel()
        for places in (self._quick, self._long, self._slow):
            if place in places:
                places.remove(place)
        self._of_caller -= Counter((place.caller,))
        self._admit()

    def _admit(self) -> None:
        while self._long and len(self._slow) < self._count:
            place = self._long.pop(0)
            self._quick.remove(place)
            self._slow.append(place)
        while self._waiting and len(self._quick) < self._count:
            place = min(self._waiting, key=lambda one: self._of_caller[one.caller])
            self._waiting.remove(place)
            self._quick.append(place)
            self._of_caller[place.caller] += 1
            place.alarm = place.ready.get_loop().call_later(QUICK_SECONDS, self._took_long, place)
            if not place.ready.done():  # it is, if its caller was cancelled just now
                place.ready.set_result(None)

    def _took_long(self, place: Place) -> None:
        self._long.append(place)
        self._admit()
