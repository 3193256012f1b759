"""Files that `engine eval` and `engine sample` write: whole or not at all, by one process."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import BinaryIO

from engine.errors import StartupError

UNFINISHED = ".unfinished"
"""Suffix of a file that is still written to."""


def write_whole(file: Path, data: bytes, *, durable: bool = True) -> None:
    """Replaces the file's content in one step. durable: survives a power cut.

    Raises OSError; the file is then as it was before.
    """
    # The process id is part of the name: `engine eval show` may write beside a run that is ending.
    unfinished = file.with_name(f"{file.name}.{os.getpid()}{UNFINISHED}")
    try:
        with unfinished.open("wb") as out:
            out.write(data)
            if durable:
                out.flush()
                os.fsync(out.fileno())
        unfinished.replace(file)
    except OSError:
        unfinished.unlink(missing_ok=True)
        raise


def take_lock(file: Path, output: Path, command: str) -> BinaryIO:
    """The open file, locked until it is closed; created if it is missing.

    Raises StartupError if another process holds the lock. command: what that process runs.
    """
    lock = file.open("ab")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        lock.close()
        raise StartupError(
            f"{output} is in use by another `{command}`: wait for it, or choose another --output"
        ) from error
    return lock
