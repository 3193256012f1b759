"""Ties the life of SGLang's child processes to the server, from their first instruction on.

SGLang's scheduler and detokenizer ask the kernel to be killed when the server ends, but only after
they have imported everything, many seconds into their life: a server killed before that leaves
them behind for good. The environment's .pth file imports this module at every start of Python; it
acts in multiprocessing's spawned children alone, and only under the launcher, which names the
server's pid in the environment.

multiprocessing's resource tracker is left alone: it ends by itself once all others have, and
removes what they left in shared memory.
"""

import os
import sys

SERVER_PID = "TOOLWRIGHT_SAMPLER_PID"
PR_SET_PDEATHSIG = 1  # <linux/prctl.h>


def runs(pid: int) -> bool:
    """Whether the process exists and is not yet a zombie."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as stat:
            return stat.read().rpartition(") ")[2][0] not in "ZX"
    except OSError:
        return False


def bind(server: int) -> None:
    """Ask for SIGKILL at the parent's end, or end now where the server already has."""
    import ctypes
    import signal

    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if not runs(server):
        os._exit(1)


if SERVER_PID in os.environ and any("spawn_main" in word for word in sys.orig_argv):
    bind(int(os.environ[SERVER_PID]))
