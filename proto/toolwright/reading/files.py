"""Files that may be hostile: a FIFO or a device is refused, not waited for."""

from __future__ import annotations

import os
import stat
from errno import EINVAL
from pathlib import Path
from typing import BinaryIO


def open_regular(path: Path) -> BinaryIO:
    """The file for reading, from its start. Raises OSError, also if it is not a regular file."""
    # Without O_NONBLOCK a FIFO would hold this thread until another program opens it.
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(EINVAL, "not a regular file", str(path))
    return os.fdopen(descriptor, "rb")
