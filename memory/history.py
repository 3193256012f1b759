"""The fold of a log: its newest version and any older one, from the nearest snapshot on.

Invariants
- A version is the fold of the changes before it, whether a snapshot helped or not.
- A snapshot that is torn, missing, or of another log is passed over.
- A snapshot is made when the log has grown by the size of the last one, so all snapshots together
  are not longer than the log.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from memory.errors import NoVersion, Unusable
from memory.graph import snapshot
from memory.graph.changes import from_bytes, read_as
from memory.graph.fold import Builder
from memory.graph.graph import EMPTY, ToolGraph
from memory.store import Log, pages
from memory.types import Change, NewNode

log = logging.getLogger(__name__)

LEAST = 4 << 20
"""Least bytes of changes for a snapshot; folding them takes some tens of milliseconds."""
LARGEST = 400 << 20
"""Maximum size of a snapshot, in bytes; Redis takes 512 MiB, SQLite 1 GB."""


def due(since: int, saved: int) -> bool:
    """Whether a snapshot is worth its bytes. since: bytes of changes after the last one; saved: its
    own."""
    return since >= max(LEAST, saved)


class History:
    """Not thread-safe but for `at`."""

    def __init__(self, log: Log) -> None:
        """Reads the newest snapshot; folds no change yet."""
        self._log = log
        graph, self._saved = self._nearest(None)
        self._builder = Builder(graph)
        self._since = 0
        self.newest = graph

    def refresh(self, each: Callable[[NewNode], None]) -> bool:
        """Folds the changes appended since; returns whether there were any. each: called with each
        new node. Raises Unusable."""
        before = self._builder.version
        for data in pages(self._log, before):
            with read_as(self._builder.version + 1):
                self._apply(from_bytes(data), data, each)
        return self._published(before)

    def follow(self, change: Change, data: bytes, each: Callable[[NewNode], None]) -> None:
        """Folds a change that was appended as the next one."""
        before = self._builder.version
        self._apply(change, data, each)
        self._published(before)

    def at(self, version: int) -> ToolGraph:
        """The graph of a version. Raises NoVersion or Unusable."""
        newest = self.newest
        if version == newest.version:
            return newest
        if not 0 <= version < newest.version:
            raise NoVersion(f"the memory has versions 0 to {newest.version}, and not {version}")
        graph, _ = self._nearest(version)
        builder = Builder(graph)
        for data in pages(self._log, graph.version, version - graph.version):
            with read_as(builder.version + 1):
                builder.apply(from_bytes(data))
        return builder.graph()

    def _apply(self, change: Change, data: bytes, each: Callable[[NewNode], None]) -> None:
        self._builder.apply(change)
        self._since += len(data)
        self._tip = data
        for part in change.merged:
            for made in part.made:
                each(made)

    def _published(self, before: int) -> bool:
        if self._builder.version == before:
            return False
        self.newest = self._builder.graph()
        if due(self._since, self._saved):
            self._save()
        return True

    def _save(self) -> None:
        """Writes a snapshot. A failure is only logged: the change is durable already."""
        data = snapshot.to_bytes(self.newest, self._tip)
        self._since, self._saved = 0, len(data)
        if len(data) > LARGEST:
            return
        try:
            self._log.keep(self.newest.version, data)
        except Unusable as error:
            log.warning("no snapshot of version %d: %s", self.newest.version, error)

    def _nearest(self, version: int | None) -> tuple[ToolGraph, int]:
        """(the newest snapshot up to a version, its bytes), or version 0."""
        for number in self._log.snapshots(1 << 53 if version is None else version):
            data = self._log.snapshot(number)
            tip = self._log.read(number - 1, 1)
            if data is None or not tip:
                continue
            try:
                return snapshot.from_bytes(data, tip[0]), len(data)
            except (ValueError, LookupError, TypeError, AttributeError) as error:
                log.warning("the snapshot of version %d is passed over: %r", number, error)
        return EMPTY, 0
