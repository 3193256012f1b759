"""Files that are either whole or not there, and what tells two files apart."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import BinaryIO

PIECE = 1 << 20
PIECES = 64


def write_whole(path: Path, write: Callable[[BinaryIO], object]) -> None:
    """Calls `write` with a file that takes the name `path` only once it is on disk."""
    partial = path.with_name(path.name + ".partial")
    with partial.open("wb") as file:
        write(file)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)


def fingerprint(path: Path) -> str:
    """Digest of a file's size and at most 64 MiB of it, in 64 pieces spread evenly.

    A smaller file is read completely. The Wikipedia dump has 14 GB: to read all of it at every
    start would take longer than all the rest of the start.
    """
    size = path.stat().st_size
    digest = hashlib.blake2b(str(size).encode(), digest_size=16)
    with path.open("rb") as file:
        if size <= PIECE * PIECES:
            starts: Iterable[int] = range(0, size, PIECE)
        else:
            starts = (piece * (size - PIECE) // (PIECES - 1) for piece in range(PIECES))
        for start in starts:
            file.seek(start)
            digest.update(file.read(PIECE))
    return digest.hexdigest()


def folder_fingerprint(folder: Path, suffixes: Iterable[str]) -> str:
    """Digest of the names and contents of the files below `folder` with these suffixes."""
    digest = hashlib.blake2b(digest_size=16)
    wanted = set(suffixes)
    for path in sorted(path for path in folder.rglob("*") if path.suffix in wanted):
        digest.update(f"{path.relative_to(folder)}\0{fingerprint(path)}\0".encode())
    return digest.hexdigest()
