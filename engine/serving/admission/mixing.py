"""Whose group is next if several tasks share the batches: a pure state machine.

Every batch of `groups_per_step` groups, in the order of delivery, holds each task's allotment
exactly. With one task this is no restriction.

Invariants
- Position p of the run is position p // n of task p % n, n being the number of tasks. Each task
  walks through its own source, independent of the others' positions.
- A task that lost a group before it was stored is the furthest behind, so it is admitted next. The
  group's task was unusable, or the group was discarded.
- No group of batch b + 1 is stored before all groups of batch b. A group that has to wait can wait.
  While a batch lacks a group, its task has one in flight or is admitted next.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping


class Mixture:
    """Counts groups by task. allotment: groups of each task in a batch, at least one."""

    def __init__(self, allotment: Mapping[str, int]) -> None:
        self._allotment = dict(allotment)
        self._names = tuple(allotment)
        self._batch = sum(allotment.values())
        self._begun: Counter[str] = Counter()
        """Groups stored or in flight."""
        self._reserved: Counter[str] = Counter()
        """Groups stored or about to be stored."""
        self._stored = 0

    def resume(self, kept: Iterable[int]) -> None:
        """Continues from the journal. kept: positions of all groups that an earlier life stored for
        a batch."""
        found = Counter(self.task_of(position)[0] for position in kept)
        self._begun, self._reserved = Counter(found), Counter(found)
        self._stored = found.total()

    def position(self, name: str, own: int) -> int:
        """Position in the run of a task's own position."""
        return own * len(self._names) + self._names.index(name)

    def task_of(self, position: int) -> tuple[str, int]:
        """(task, position in its source); the inverse of `position`."""
        own, place = divmod(position, len(self._names))
        return self._names[place], own

    def next_task(self) -> str:
        """The task whose group is admitted next: the furthest behind its allotment."""
        return min(self._names, key=lambda one: (2 * self._begun[one] + 1) / self._allotment[one])

    def admit(self) -> str:
        """Counts the admission of a group of the next task. Returns the task."""
        name = self.next_task()
        self._begun[name] += 1
        return name

    def give_back(self, name: str) -> None:
        """Returns the admission of a group that failed."""
        self._begun[name] -= 1

    def reserve(self, name: str) -> bool:
        """Reserves a place for a group of the task in the batch that is being filled, until `store`
        or `release`. Returns whether there was one."""
        batches = self._stored // self._batch + 1
        mixed = len(self._names) > 1
        if mixed and self._reserved[name] >= batches * self._allotment[name]:
            return False
        self._reserved[name] += 1
        return True

    def store(self) -> None:
        """Counts a group with a place that is journaled."""
        self._stored += 1

    def release(self, name: str) -> None:
        """Frees the place of a group that is discarded."""
        self._reserved[name] -= 1
        self.give_back(name)
