"""The store of changes: an append-only log with several writers, in SQLite or in Redis.

A `Log` gives the n-th change the version n. Appending is idempotent by group, durable when it
returns, and all or nothing: every reader sees complete changes, in one order, without a gap. A
change is decided against the version before it, so a log takes it at that place or not at all.

Snapshots lie beside the log. They only save time: the log holds all their content, so a lost or
torn snapshot costs only that time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from memory.errors import Unusable

PAGE = 256
"""Changes that are read at a time."""


class Log(Protocol):
    """The log of one memory. Thread-safe. Every method raises Unusable."""

    def append(self, group: str, data: bytes, after: int) -> tuple[int, bytes] | None:
        """(version, bytes) that stand under the group: these, or those of the first time where it
        came before. None if the log went on after version `after`. Raises Unusable if the log ends
        before that version, because its store lost changes."""
        ...

    def find(self, group: str) -> tuple[int, bytes] | None:
        """(version, bytes) of a group that came before."""
        ...

    def read(self, after: int, most: int = PAGE) -> Sequence[bytes]:
        """Changes after version `after`, in order."""
        ...

    def keep(self, version: int, snapshot: bytes) -> None:
        """Stores the snapshot of a version, whole or not at all."""
        ...

    def snapshots(self, most: int) -> Sequence[int]:
        """Versions up to `most` that have a snapshot, the newest first."""
        ...

    def snapshot(self, version: int) -> bytes | None:
        """The snapshot of a version."""
        ...

    def close(self) -> None:
        """Closes the log. Nothing is lost with or without it."""
        ...


def lost(where: str, held: int, known: int) -> Unusable:
    """The error of a store that holds fewer changes than a writer knows."""
    return Unusable(
        f"{where} has lost changes, it holds {held} of {known}: restore its data, or end this "
        "memory and begin another one"
    )


def pages(log: Log, after: int, most: int | None = None) -> Iterator[bytes]:
    """Changes after version `after`, at most so many, read page by page."""
    left = most
    while left is None or left > 0:
        page = log.read(after, PAGE if left is None else min(PAGE, left))
        yield from page
        if len(page) < PAGE:
            return
        after += len(page)
        left = None if left is None else left - len(page)
