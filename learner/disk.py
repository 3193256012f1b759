"""Files that survive a power cut: flushed before anything names them.

A rename is durable only once the folder that holds the name is flushed. A file with a durable name
may still be empty unless the file was flushed before. So the order is: files, the folders that hold
them, the rename, the folder of the new name.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path


def flush(path: Path) -> None:
    """Waits until a file's bytes, or a folder's names, are on the disk. Raises OSError."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def flush_tree(folder: Path) -> None:
    """All files and folders below, then the folder itself."""
    for inner in folder.iterdir():
        if inner.is_dir():
            flush_tree(inner)
        else:
            flush(inner)
    flush(folder)


def rename_flushed(source: Path, target: Path) -> None:
    """Gives a flushed file or folder its name in the same folder, durably.

    A file of that name is replaced; a folder of that name must not exist.
    """
    source.replace(target)
    flush(target.parent)


def write_flushed(path: Path, text: str) -> None:
    """Writes a file; the name itself is durable once its folder is flushed."""
    with path.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


def oldest_first(newest: Path, others: Iterable[Path]) -> list[Path]:
    """`others` in the order in which they were written.

    `newest` gets a modification time after all of theirs. So the order holds even if the machine's
    clock was set back between two writes.
    """
    times = {path: path.stat().st_mtime_ns for path in others}
    latest = max(times.values(), default=0)
    if newest.stat().st_mtime_ns <= latest:
        os.utime(newest, ns=(latest + 1, latest + 1))
    return sorted(times, key=times.__getitem__)
