"""Files that the journal names are on the disk before it names them.

A learner on the same machine may have written them seconds ago, so that a power cut would leave the
journal with the name of a folder whose files are empty.
"""

from __future__ import annotations

import os
from pathlib import Path

from engine.errors import PublishFailed


def flush_folder(folder: Path) -> None:
    """Flushes all files and folders below, the folder, and its own entry in the folder above.

    Whoever wrote them: a flush is of the file, not of the writer. What is not there is left to
    those who read it. PublishFailed where the disk refuses.
    """
    try:
        for where, _folders, files in os.walk(folder, topdown=False):
            for name in files:
                _flush(Path(where, name))
            _flush(Path(where))
        if folder.is_dir():
            _flush(folder.resolve().parent)
    except OSError as error:
        raise PublishFailed(f"the weights in {folder} cannot be flushed: {error}") from error


def _flush(path: Path) -> None:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except (FileNotFoundError, PermissionError):
        return
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
