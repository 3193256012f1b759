"""Writes a version's folder in the background while the run continues.

Invariants
- At most one folder is in progress. `settle` waits for it and raises its error.
- The engine learns of a folder only when it is complete and on disk.

Owns the thread. Does not know weights or the engine: both come as functions.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait

BEAT_S = 10.0
"""Interval between heartbeats to ranks that wait, in seconds."""


class FolderWriter:
    """A context manager.

    Its exit waits for a folder in progress, also after an error: no thread may write into the run's
    folder after its lock is released.
    """

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "folder-writer")
        self._in_progress: Future[float] | None = None

    def __enter__(self) -> FolderWriter:
        return self

    def __exit__(self, kind: object, *_error: object) -> None:
        if kind is None:
            self.settle()
        elif self._in_progress is not None:
            # The samplers have the version, and a later start needs its folder. The error that ends
            # the run is raised already.
            wait([self._in_progress])
        self._thread.shutdown()

    def begin(self, write: Callable[[], object], announce: Callable[[], object]) -> None:
        """Begins to write a folder and then to announce it. No other folder may be in progress."""
        if self._in_progress is not None:
            raise RuntimeError("another folder is in progress: call settle first")
        self._in_progress = self._thread.submit(self._do, write, announce)

    def settle(self, heartbeat: Callable[[], None] = lambda: None) -> float | None:
        """Waits for the folder in progress. Returns its seconds; None if there was no folder.

        heartbeat: called every few seconds meanwhile. Raises the error of `write` or `announce`.
        """
        if self._in_progress is None:
            return None
        while not wait([self._in_progress], BEAT_S).done:
            heartbeat()
        done, self._in_progress = self._in_progress, None
        return done.result()

    def _do(self, write: Callable[[], object], announce: Callable[[], object]) -> float:
        began = time.monotonic()
        write()
        announce()
        return time.monotonic() - began
