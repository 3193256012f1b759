"""The files that a session finds in its folder when it begins.

They come from a folder of the operator's, the same for all, and from the session's metadata:
`{"files": {"path/to/file": "text"}}`. Both are packed as `jailed.files.unpack` reads them: a line
of JSON that lists [path, mode, size], then the bytes of them all.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, NamedTuple

from toolsvc.errors import Reason, Refused, StartError

_FILE_MODE = stat.S_IFREG | 0o644


class Entry(NamedTuple):
    """`content`: of a symbolic link, where it points."""

    path: str
    mode: int
    content: bytes


def read_folder(folder: Path, limit: int) -> list[Entry]:
    """All that is in it. StartError if that cannot be read, or has more than `limit` bytes."""
    entries: list[Entry] = []
    size = 0
    try:
        if not folder.is_dir():
            raise StartError(f"--set bash.folder={folder}: there is no such folder")
        for path in sorted(folder.rglob("*")):
            mode = path.lstat().st_mode
            content = b""
            if stat.S_ISLNK(mode):
                content = os.fsencode(path.readlink())
            elif stat.S_ISREG(mode):
                content = path.read_bytes()
            elif not stat.S_ISDIR(mode):
                raise StartError(f"--set bash.folder: {path} is neither a file nor a folder")
            size += len(content)
            if size > limit:
                raise StartError(
                    f"--set bash.folder={folder}: it has more than {limit >> 20} MiB, the limit "
                    "of a session: raise --disk-mib"
                )
            entries.append(Entry(str(path.relative_to(folder)), mode, content))
    except OSError as error:
        raise StartError(f"--set bash.folder={folder}: {error}") from error
    return entries


def metadata_files(metadata: Mapping[str, Any], limit: int) -> list[Entry]:
    """Refused if `files` is not a mapping of relative paths to texts, or above `limit` bytes."""
    files = metadata.get("files", {})
    if not isinstance(files, Mapping):
        raise _refused("is not a mapping of paths to texts")
    entries = []
    for path, text in files.items():
        parts = PurePosixPath(path).parts
        if not parts or path.startswith("/") or ".." in parts or "\0" in path:
            raise _refused(f"has the path {path!r}, which is not one below the session's folder")
        if not isinstance(text, str):
            raise _refused(f"has no text for {path!r}")
        entries.append(Entry(str(PurePosixPath(path)), _FILE_MODE, text.encode("utf-8", "replace")))
    if sum(len(entry.content) for entry in entries) > limit:
        raise _refused(f"has more than {limit >> 20} MiB")
    return entries


def pack(entries: list[Entry]) -> BinaryIO:
    """An in-memory file; its descriptor lives as long as the object."""
    file = open(os.memfd_create("tree", os.MFD_CLOEXEC), "w+b")  # noqa: SIM115 - the caller's
    listing = [[entry.path, entry.mode, len(entry.content)] for entry in entries]
    file.write(json.dumps(listing).encode() + b"\n")
    for entry in entries:
        file.write(entry.content)
    file.flush()
    return file


def _refused(what: str) -> Refused:
    return Refused(Reason.INVALID_REQUEST, f"metadata.files {what}", subject="files")
