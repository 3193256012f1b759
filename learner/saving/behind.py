"""A version's folder, written while the run goes on with the samplers at that version.

Invariants
- At most one folder is under way. `settle` waits for it, and raises what went wrong with it.
- The engine is told of a folder when it is whole and on the disk, not before.

Owns the thread. Does not know weights nor the engine: it is given what to do.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from types import TracebackType

BEAT_S = 10.0
"""Between signs of life to those who wait for who waits."""


class FolderBehind:
    """A context manager. Leaving it waits for what is under way, whatever ends the run: nobody
    writes in the run's folder once its lock is given back."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "folder-behind")
        self._under_way: Future[float] | None = None

    def __enter__(self) -> FolderBehind:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None:
            self.settle()
        elif self._under_way is not None:
            # The samplers have the version; with its folder a later start finds it. What ends the
            # run is said already.
            wait([self._under_way])
        self._thread.shutdown()

    def begin(self, write: Callable[[], object], tell: Callable[[], object]) -> None:
        """Begins to write a folder and to tell the engine of it. Nothing may be under way."""
        if self._under_way is not None:
            raise RuntimeError("a folder is under way already")
        self._under_way = self._thread.submit(self._do, write, tell)

    def settle(self, beat: Callable[[], None] = lambda: None) -> float | None:
        """Waits until nothing is under way; the seconds that it took, None where nothing was.

        beat: called every few seconds meanwhile. Raises what `write` or `tell` raised.
        """
        if self._under_way is None:
            return None
        while not wait([self._under_way], BEAT_S).done:
            beat()
        done, self._under_way = self._under_way, None
        return done.result()

    def _do(self, write: Callable[[], object], tell: Callable[[], object]) -> float:
        began = time.monotonic()
        write()
        tell()
        return time.monotonic() - began
