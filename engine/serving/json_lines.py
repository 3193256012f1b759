"""Files of JSON lines that only grow: a reader sees whole lines, and a full disk loses nothing.

Invariants
- Rows that are appended together are in the file together, or none of them is.
- After `cut_partial_line` the file ends with a whole line, whatever a kill cut.
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
"""Interval between tries to write on a full disk."""
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""Full disk, used quota, and a limit on file sizes. The journal waits for all three too."""
_BLOCK = 1 << 16

log = structlog.get_logger("files")


class JsonLines:
    """One file of JSON lines. `full`: the disk is full, and an `append` waits for room. Only one
    writer at a time in a process."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.full = False
        self._lock = asyncio.Lock()

    def read(self) -> Iterator[dict[str, Any]]:
        """Rows from the first on, one in memory at a time; no rows without a file. Lines that are
        not JSON objects are skipped: a failing disk may have left them."""
        for row, _ in self.read_with_ends():
            if row is not None:
                yield row

    def read_with_ends(self) -> Iterator[tuple[dict[str, Any] | None, int]]:
        """Every line with the byte offset of its end in the file. The row is None if the line is
        not a JSON object."""
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

    def cut_partial_line(self) -> None:
        """Removes the rest of a last line that a kill cut, so that no row is appended to it."""
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
        """Writes the rows; on a full disk it waits for space. Raises OSError for any other
        failure."""
        async with self._lock:
            data = b"".join(orjson.dumps(row) + b"\n" for row in rows)
            await retry_while_full(lambda: _append(self.file, data), self.file, self._set_full)

    def _set_full(self, full: bool) -> None:
        self.full = full


async def retry_while_full(
    write: Callable[[], None], file: Path, report_full: Callable[[bool], None]
) -> None:
    """Calls `write` until the disk has room for it. `report_full` gets whether the disk is full."""
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
            report_full(True)
            await asyncio.sleep(FULL_SECONDS)
        else:
            report_full(False)
            return


def append_whole(file: Path, pieces: Iterable[bytes]) -> None:
    """Appends all pieces, or nothing if an OSError ends the write."""
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
