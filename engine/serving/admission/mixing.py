"""Whose group is next where several tasks share the batches; a state machine, nothing else.

Every batch of `groups_per_step` groups, in the order of delivery, holds each task's allotment
exactly. With one task that is no restriction at all.

Invariants
- Position p of the run is position p // n of task p % n, n being the number of tasks: each task
  walks through its own source, whatever becomes of the others' positions.
- A task that lost a group before it was stored (its question could not be asked, the group was
  turned away) is admitted next, for it is the furthest behind.
- No group of batch b + 1 is stored before all of batch b are. A group that has to wait can: while
  a batch lacks a group, its task has one in flight or is the next to be admitted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping


class Mixture:
    """Counts groups by task. allotment: groups of each in a batch, one at least."""

    def __init__(self, allotment: Mapping[str, int]) -> None:
        self._allotment = dict(allotment)
        self._names = tuple(allotment)
        self._batch = sum(allotment.values())
        self._begun: Counter[str] = Counter()
        """Stored or in flight."""
        self._reserved: Counter[str] = Counter()
        """Stored or about to be."""
        self._stored = 0

    def resume(self, kept: Iterable[int]) -> None:
        """kept: positions of all groups that an earlier life stored for a batch."""
        found = Counter(self.task_of(position)[0] for position in kept)
        self._begun, self._reserved = Counter(found), Counter(found)
        self._stored = found.total()

    def position(self, name: str, own: int) -> int:
        """Of the run, for a task's own position."""
        return own * len(self._names) + self._names.index(name)

    def task_of(self, position: int) -> tuple[str, int]:
        """(task, position in its source); the inverse of `position`."""
        own, place = divmod(position, len(self._names))
        return self._names[place], own

    def admit(self) -> str:
        """The task whose group is admitted next, the furthest behind its allotment."""
        name = min(self._names, key=lambda one: (2 * self._begun[one] + 1) / self._allotment[one])
        self._begun[name] += 1
        return name

    def give_back(self, name: str) -> None:
        """An admitted group comes to nothing."""
        self._begun[name] -= 1

    def reserve(self, name: str) -> bool:
        """Whether a group of the task has a place in the batch that is being filled; it is taken
        then, until `store` or `release`."""
        batches = self._stored // self._batch + 1
        mixed = len(self._names) > 1
        if mixed and self._reserved[name] >= batches * self._allotment[name]:
            return False
        self._reserved[name] += 1
        return True

    def store(self) -> None:
        """A group that has its place is journaled."""
        self._stored += 1

    def release(self, name: str) -> None:
        """A group that has its place is turned away."""
        self._reserved[name] -= 1
        self.give_back(name)
