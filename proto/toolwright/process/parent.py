"""A process that must not outlive the one that started it."""

from __future__ import annotations

import ctypes
import os
import signal

_PR_SET_PDEATHSIG = 1


def die_with_parent(parent: int = 0) -> None:
    """From now on the kernel kills this process when the thread that started it has ended.

    parent: the process that must live; 0 = the present parent. Raises SystemExit if it is not the
    parent any more: it ended before this call, and no signal would come.
    """
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if parent and os.getppid() != parent:
        raise SystemExit(f"the process that started this one, {parent}, has ended")
