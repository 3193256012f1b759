"""One console on a run at a time: a lock file that the kernel releases when its process ends.

Invariants
- The lock is on the open file, not on its existence: a dead console's file locks nothing.
- The file is never removed, so two consoles that start together lock the same file.
- The file's content (process, machine) is for the sentence alone.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from console.errors import ConsoleError, NothingStarted, Taken
from console.record.course import FOLDER

FILE = f"{FOLDER}/console.lock"
INTERVAL_S = 0.1
_UNABLE = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)
_GONE = (errno.ENOENT, errno.ENOTDIR)


class Held:
    """The lock while it is held: whether the folder is still there that it was taken in."""

    def __init__(self, path: Path, file: IO[str]) -> None:
        self._path = path
        self._file = file
        self._linked = os.fstat(file.fileno()).st_nlink > 0  # some file systems do not count

    def is_gone(self) -> bool:
        """Whether it was removed or replaced. An unreachable file system does not count."""
        try:
            self._path.stat()
            return self._linked and os.fstat(self._file.fileno()).st_nlink == 0
        except OSError as error:
            return error.errno in _GONE


def taken_run(run: Path, who: str) -> str:
    """The sentence for a run that another console has; who: " (process ...)"."""
    return (
        f"another `toolwright run` works in {run}{who}: `toolwright status {run}` shows it, "
        f"`toolwright stop {run}` ends it, another --folder is another run"
    )


@contextmanager
def only_console(run: Path, taken: Callable[[Path, str], str] = taken_run) -> Iterator[Held]:
    """Holds the run folder for this process. Taken names who has it, in the words of `taken`;
    NothingStarted where a file is in the way, ConsoleError where none can be written there. A file
    system without locks is taken as it is."""
    path = run / FILE
    if (file_there := _file_above(path.parent)) is not None:
        raise NothingStarted(
            f"run.folder: {file_there} is a file: choose another run.folder (--folder), or move "
            "the file away"
        )
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = path.open("a+", encoding="utf-8")
    except OSError as error:
        raise ConsoleError(unwritable(run, error)) from error
    with file:
        try:
            if not try_lock(file):
                raise Taken(taken(run, _holder(path)))
            file.truncate(0)
            json.dump({"pid": os.getpid(), "host": socket.gethostname()}, file)
            file.flush()
        except OSError as error:
            raise ConsoleError(unwritable(run, error)) from error
        yield Held(path, file)


def try_lock(file: IO[str], wait_s: float = 0.0) -> bool:
    """Locks an open file; False if another process keeps it locked for wait_s seconds. A file
    system without locks is taken as it is. Raises OSError."""
    ends = time.monotonic() + wait_s
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= ends:
                return False
            time.sleep(INTERVAL_S)
        except OSError as error:
            if error.errno not in _UNABLE:
                raise
            return True
        else:
            return True


def unwritable(run: Path, error: OSError) -> str:
    """The sentence for a run folder that takes nothing."""
    where = error.filename or run
    return (
        f"{where} cannot be written ({error.strerror}): give this user rights and room there, or "
        "choose another run.folder (--folder)"
    )


def _file_above(folder: Path) -> Path | None:
    """What stands where the folder, or one that it lies in, would have to be."""
    there = next(one for one in (folder, *folder.parents) if os.path.lexists(one))
    return None if there.is_dir() else there


def _holder(path: Path) -> str:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        return f" (process {found['pid']} on {found['host']})"
    except (OSError, ValueError, KeyError, TypeError):
        return ""
