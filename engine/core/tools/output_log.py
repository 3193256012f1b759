"""The file of a tool service's output, which stays bounded however much the service prints.

Invariants
- Every writer appends, so the file may be emptied below them. The service itself writes its
  standard error there, and goes on after the engine is gone.
- At the limit the file's content replaces `NAME.older.log`. Both files together have at most twice
  the limit, plus the output of one check interval.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
from collections.abc import AsyncIterator
from io import FileIO
from pathlib import Path

LIMIT = 16 * 1024 * 1024
"""Bytes at which a new file begins."""
LOOK_SECONDS = 1.0
LAST_WORDS_BYTES = 4096
"""Bytes at the end of the file that are searched for a sentence."""


class OutputLog:
    """A log file and the one before it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._begin = 0
        """Bytes of the file that earlier lives of the service printed."""

    @property
    def older(self) -> Path:
        return self.path.with_name(f"{self.path.stem}.older{self.path.suffix}")

    def writer(self) -> FileIO:
        """The file, for appending; its folder is made."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        return self.path.open("ab", buffering=0)

    def begin(self) -> None:
        """Begins the output of a new life of the service."""
        self._begin = self.path.stat().st_size

    @contextlib.asynccontextmanager
    async def bounded(self) -> AsyncIterator[None]:
        """Context inside which the file stays below its limit."""
        looking = asyncio.create_task(self._look())
        try:
            yield
        finally:
            looking.cancel()
            await asyncio.wait({looking})

    async def _look(self) -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            await asyncio.to_thread(self.bound)

    def bound(self) -> None:
        """Starts a new file if this one has reached its limit."""
        if self.path.stat().st_size < LIMIT:
            return
        with contextlib.suppress(OSError):  # a full disk must not end the run
            shutil.copyfile(self.path, self.older)
        os.truncate(self.path, 0)
        self._begin = 0

    def last_words(self) -> str:
        """The last line of this life, or the end of a long one; "" without a line."""
        with self.path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(self._begin, size - LAST_WORDS_BYTES))
            lines = file.read().decode("utf-8", "replace").strip().splitlines()
        return lines[-1] if lines else ""
