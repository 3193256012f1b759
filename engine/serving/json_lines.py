"""Files of JSON lines that only grow: a reader sees whole lines, and a full disk costs nothing.

Invariants
- Rows that are appended together are in the file together, or none of them.
- After `mend_end` the file ends with a whole line, whatever a kill cut.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import orjson
import structlog

FULL_SECONDS = 5.0
"""Between tries to write on a full disk."""
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""Full disk, used quota, and a limit on the size of files. The journal waits for all three too."""
_BLOCK = 1 << 16

log = structlog.get_logger("files")


class Lines:
    """One file of JSON lines. `full`: the disk is full, and an `append` waits for room. One writer
    at a time in a process."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.full = False
        self._lock = asyncio.Lock()

    def read(self) -> Iterator[dict[str, Any]]:
        """Rows from the first on, one in memory at a time; none where there is no file. What is no
        JSON object is passed over: a disk that failed may have left it."""
        for row, _ in self.read_with_ends():
            if row is not None:
                yield row

    def read_with_ends(self) -> Iterator[tuple[dict[str, Any] | None, int]]:
        """Every line, None for what is no JSON object, each with the place in the file, in bytes,
        where it ends."""
        if not self.file.exists():
            return
        end = 0
        with self.file.open("rb") as lines:
            for line in lines:
                end += len(line)
                try:
                    row = orjson.loads(line)
                except orjson.JSONDecodeError:
                    row = None
                yield (row if isinstance(row, dict) else None), end

    def mend_end(self) -> None:
        """Takes away what a kill left of a last line, so that nothing is appended to it."""
        if not self.file.exists():
            return
        end = self.file.stat().st_size
        with self.file.open("rb") as file:
            while end:
                start = max(0, end - _BLOCK)
                file.seek(start)
                newline = file.read(end - start).rfind(b"\n")
                if newline >= 0:
                    end = start + newline + 1
                    break
                end = start
        os.truncate(self.file, end)

    async def append(self, *rows: Mapping[str, object]) -> None:
        """Writes the rows; on a full disk it waits for space. OSError for any other failure."""
        async with self._lock:
            data = b"".join(orjson.dumps(row) + b"\n" for row in rows)
            await when_there_is_room(lambda: _append(self.file, data), self.file, self._set_full)

    def _set_full(self, full: bool) -> None:
        self.full = full


async def when_there_is_room(
    write: Callable[[], None], file: Path, tell: Callable[[bool], None]
) -> None:
    """Calls `write` until the disk has room for it; `tell` hears whether it is full."""
    said = False
    while True:
        try:
            write()
        except OSError as error:
            if error.errno not in NO_ROOM:
                raise
            if not said:
                log.warning("disk_full", file=str(file), fix="free space; the run goes on")
                said = True
            tell(True)
            await asyncio.sleep(FULL_SECONDS)
        else:
            tell(False)
            return


def append_whole(file: Path, pieces: Iterable[bytes]) -> None:
    """Appends all of it, or nothing where an OSError ends it."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("ab", buffering=0) as out:
        whole = out.tell()
        left = memoryview(b"".join(pieces))
        try:
            while left:
                left = left[out.write(left) :]
        except OSError:
            # Nothing of it stays, so that it can be written again.
            with contextlib.suppress(OSError):
                out.truncate(whole)
            raise


def _append(file: Path, data: bytes) -> None:
    append_whole(file, (data,))
