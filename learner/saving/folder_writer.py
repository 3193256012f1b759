"""Writes a folder in the background while the run continues: a version's, or a checkpoint.

Invariants
- At most one folder is in progress. `settle` waits for it and raises its error.
- A folder is announced only when it is complete and on disk.

Owns the thread. Does not know what is written: it comes as functions.
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
            # A later start needs the folder. The error that ends the run is raised already.
            wait([self._in_progress])
        self._thread.shutdown()

    @property
    def done(self) -> bool:
        """Whether a folder is written that `settle` has not returned yet."""
        return self._in_progress is not None and self._in_progress.done()

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
