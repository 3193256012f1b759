"""The files that a session finds in its folder when it begins.

They come from a folder of the operator's, the same for all, and from the session's metadata:
`{"files": {"path/to/file": "text"}}`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from toolsvc.errors import Reason, Refused, StartError
from toolsvc.tools.files import FILE_MODE, Entry, TreeError, read_tree


def read_folder(folder: Path, limit: int) -> list[Entry]:
    """All entries of the folder. Raises StartError if it cannot be read, or has more than `limit`
    bytes."""
    try:
        return read_tree(folder, limit)
    except TreeError as error:
        raise StartError(f"--set bash.folder: {error}; a session holds --disk-mib") from error


def metadata_files(metadata: Mapping[str, Any], limit: int) -> list[Entry]:
    """Raises Refused if `files` is not a mapping of relative paths to texts, or above `limit`
    bytes."""
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
        entries.append(Entry(str(PurePosixPath(path)), FILE_MODE, text.encode("utf-8", "replace")))
    if sum(len(entry.content) for entry in entries) > limit:
        raise _refused(f"has more than {limit >> 20} MiB")
    return entries


def _refused(what: str) -> Refused:
    return Refused(Reason.INVALID_REQUEST, f"metadata.files {what}", subject="files")
