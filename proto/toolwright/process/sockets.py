"""Folders for Unix sockets: the kernel bounds the length of their paths."""

from __future__ import annotations

import os
import tempfile

LONGEST_PATH = 107
"""Bytes of a Unix socket's path on Linux."""
_SHORT = ("/tmp", "/var/tmp", "/dev/shm")
"""Folders to use if TMPDIR is too long, as it is under many job schedulers."""
_ROOM = 48
"""Bytes for the folder's and the socket's own names."""


def folder_for_sockets() -> str:
    """A folder for temporary folders that hold sockets: TMPDIR, or a shorter one if a socket's path
    would not fit there. Raises OSError if no such folder can be written."""
    chosen = tempfile.gettempdir()
    for folder in (chosen, *_SHORT):
        fits = len(os.fsencode(folder)) + _ROOM <= LONGEST_PATH
        if fits and os.access(folder, os.W_OK | os.X_OK):
            return folder
    raise OSError(
        f"TMPDIR={chosen} is too long for sockets, whose paths have {LONGEST_PATH} bytes at most, "
        f"and none of {', '.join(_SHORT)} can be written: set TMPDIR to a shorter folder"
    )


def path_fault(path: str) -> str:
    """Why a socket cannot have this path; "" if it can. The abstract namespace has the same
    limit."""
    size = len(os.fsencode(path))
    if size <= LONGEST_PATH:
        return ""
    return f"the path has {size} bytes, and a Unix socket's has {LONGEST_PATH} at most: shorten it"
