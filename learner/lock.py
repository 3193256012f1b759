"""One learner in a folder at a time: a lock file that the kernel releases when its process ends.

Invariants
- The lock is on the open file, not on its existence: the file of a dead process blocks no other.
- The file is never removed, so two learners that start at one instant lock the same file.
- The file's content (process, host, start) is for the error message alone.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import IO

from learner.errors import FolderError, TakenError

FILE_NAME = "learner.lock"
_UNABLE = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)
_HOLDER_WRITES_S = 0.2
"""Time for a holder that has just started to write its name into the file."""


@contextmanager
def only_learner(folder: Path) -> Iterator[str | None]:
    """Holds `folder` for this process. Yields a warning if its file system has no locks.

    Raises TakenError with the name of the process that holds it, and FolderError if the folder
    cannot be written.
    """
    path = folder / FILE_NAME
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = path.open("a+", encoding="utf-8")
    except OSError as error:
        raise FolderError(
            f"{folder} cannot be written ({error.strerror}): give this user write access and "
            "space there, or choose another run.folder"
        ) from error
    with file:
        yield _lock(file, path)


def _lock(file: IO[str], path: Path) -> str | None:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        time.sleep(_HOLDER_WRITES_S)
        raise TakenError(
            f"another learner works in {path.parent}{_holder(path)}: stop it, or choose another "
            f"run.folder. ({path} can stay: it blocks only while a process holds it)"
        ) from error
    except OSError as error:
        if error.errno not in _UNABLE:
            raise
        return (
            f"the file system of {path} has no locks ({error.strerror}): make sure that only one "
            "learner works in that folder"
        )
    file.truncate(0)
    since = datetime.now(UTC).isoformat(timespec="seconds")
    json.dump({"pid": os.getpid(), "host": socket.gethostname(), "since": since}, file)
    file.flush()
    return None


def _holder(path: Path) -> str:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        return f" (process {found['pid']} on {found['host']} since {found['since']})"
    except (OSError, ValueError, KeyError, TypeError):
        return ""
