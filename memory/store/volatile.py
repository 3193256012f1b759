"""A log that is gone with its process: for tests, benchmarks, and a look at an export."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from memory.store import PAGE


class VolatileLog:
    """Thread-safe; several memories of one process may share one."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._changes: list[bytes] = []
        self._groups: dict[str, int] = {}
        self._snapshots: dict[int, bytes] = {}

    def append(self, group: str, data: bytes, after: int) -> tuple[int, bytes] | None:
        with self._lock:
            if (version := self._groups.get(group)) is not None:
                return version, self._changes[version - 1]
            if after != len(self._changes):
                return None
            self._changes.append(data)
            self._groups[group] = len(self._changes)
            return len(self._changes), data

    def find(self, group: str) -> tuple[int, bytes] | None:
        with self._lock:
            version = self._groups.get(group)
            return None if version is None else (version, self._changes[version - 1])

    def read(self, after: int, most: int = PAGE) -> Sequence[bytes]:
        with self._lock:
            return self._changes[after : after + most]

    def keep(self, version: int, snapshot: bytes) -> None:
        with self._lock:
            self._snapshots[version] = snapshot

    def snapshots(self, most: int) -> Sequence[int]:
        with self._lock:
            return sorted((v for v in self._snapshots if v <= most), reverse=True)

    def snapshot(self, version: int) -> bytes | None:
        with self._lock:
            return self._snapshots.get(version)

    def close(self) -> None:
        pass
