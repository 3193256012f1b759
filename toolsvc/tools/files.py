"""A tree of files on its way into a session's folder.

Packed as `sandbox.jailed.drivers.files.unpack` reads it: a line of JSON that lists [path, mode,
size], then the bytes of all files.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO, NamedTuple

FILE_MODE = stat.S_IFREG | 0o644


class Entry(NamedTuple):
    """`path`: relative. `content`: of a symbolic link, where it points; of a folder, nothing."""

    path: str
    mode: int
    content: bytes


class TreeError(Exception):
    """A folder that cannot be read as a tree; the message says which and why."""


def read_tree(folder: Path, limit: int) -> list[Entry]:
    """All entries below the folder. Raises TreeError if it cannot be read, or has more than `limit`
    bytes."""
    entries: list[Entry] = []
    size = 0
    try:
        if not folder.is_dir():
            raise TreeError(f"{folder}: there is no such folder")
        for path in sorted(folder.rglob("*")):
            mode = path.lstat().st_mode
            content = b""
            if stat.S_ISLNK(mode):
                content = os.fsencode(path.readlink())
            elif stat.S_ISREG(mode):
                content = path.read_bytes()
            elif not stat.S_ISDIR(mode):
                raise TreeError(f"{path} is neither a file nor a folder")
            size += len(content)
            if size > limit:
                raise TreeError(f"{folder} has more than {limit >> 20} MiB, the limit of a session")
            entries.append(Entry(str(path.relative_to(folder)), mode, content))
    except OSError as error:
        raise TreeError(f"{folder}: {error}") from error
    return entries


def pack(entries: Sequence[Entry]) -> BinaryIO:
    """An in-memory file; its descriptor lives as long as the object."""
    file = open(os.memfd_create("tree", os.MFD_CLOEXEC), "w+b")  # noqa: SIM115 - the caller's
    listing = [[entry.path, entry.mode, len(entry.content)] for entry in entries]
    file.write(json.dumps(listing).encode() + b"\n")
    for entry in entries:
        file.write(entry.content)
    file.flush()
    return file
