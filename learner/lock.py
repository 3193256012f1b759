"""One learner in a folder at a time: a lock file that the kernel lets go when its process ends.

Invariants
- The lock is on the open file, not on its existence: what a dead process left keeps nobody out.
- The file is never removed, so two that start at one instant lock the same one.
- What stands in the file (who, where, since when) is for the sentence alone.
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
"""A holder that began at this very instant has said by then who it is."""


@contextmanager
def only_learner(folder: Path) -> Iterator[str | None]:
    """Holds `folder` for this process. Yields a sentence where its file system knows no locks.

    TakenError names the process that holds it; FolderError where no file can be written there.
    """
    path = folder / FILE_NAME
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = path.open("a+", encoding="utf-8")
    except OSError as error:
        raise FolderError(
            f"{folder} cannot be written ({error.strerror}): give this user rights and room "
            "there, or choose another run.folder"
        ) from error
    with file:
        yield _lock(file, path)


def _lock(file: IO[str], path: Path) -> str | None:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        time.sleep(_HOLDER_WRITES_S)
        raise TakenError(
            f"another learner works in {path.parent}{_holder(path)}: end it first, or choose "
            f"another run.folder. ({path} need not be removed: it holds only while a process does)"
        ) from error
    except OSError as error:
        if error.errno not in _UNABLE:
            raise
        return (
            f"the file system of {path} knows no locks ({error.strerror}): see to it that one "
            "learner alone works in that folder"
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
