"""The next chunk of each growing reply, by the time at which it is due, in seconds.

A state machine without a clock: the caller passes times. Of chunks that are due at one time, the
one that was added first comes first.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable

from bench.scripted.scheduling.generation import Generation


class DueChunks:
    """A heap of replies by the time of their next chunk."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Generation]] = []
        self._serial = 0

    @property
    def first(self) -> float | None:
        """Time of the earliest chunk; None without a chunk."""
        return self._heap[0][0] if self._heap else None

    def add(self, generation: Generation, due: float) -> None:
        self._serial += 1
        heapq.heappush(self._heap, (due, self._serial, generation))

    def remove(self, generation: Generation) -> None:
        """Removes the reply's chunk, if there is one."""
        self._replace([entry for entry in self._heap if entry[2] is not generation])

    def move(self, moved: Callable[[Generation, float], float]) -> None:
        """Gives each chunk another time. moved: the new time by the reply and the old time."""
        self._replace([(moved(one, due), serial, one) for due, serial, one in self._heap])

    def take(self, until: float) -> list[tuple[float, Generation]]:
        """Removes the chunks that are due until then. Returns (time, reply) in order, without
        replies that have finished."""
        found = []
        while self._heap and self._heap[0][0] <= until:
            due, _, generation = heapq.heappop(self._heap)
            if generation.finish is None:
                found.append((due, generation))
        return found

    def _replace(self, entries: list[tuple[float, int, Generation]]) -> None:
        heapq.heapify(entries)
        self._heap = entries
