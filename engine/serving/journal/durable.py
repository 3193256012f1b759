"""Flushes files to the disk before the journal names them.

A learner on the same machine may have written them seconds ago. After a power cut the journal would
name a folder with empty files.
"""

from __future__ import annotations

import os
from pathlib import Path

from engine.errors import PublishFailed


def flush_folder(folder: Path) -> None:
    """Flushes all files and folders below, the folder, and its own entry in the folder above.

    A flush works on files of any writer. Missing files are left to their readers. Raises
    PublishFailed if the disk refuses.
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
