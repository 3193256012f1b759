"""Memory that a learner's rank could use on this machine, found without torch."""

from __future__ import annotations

import subprocess
from functools import cache

import psutil

MIB = 1 << 20
TIMEOUT_S = 10.0
QUERY = ("nvidia-smi", "--query-gpu=memory.total", "--format=csv,noheader,nounits")


@cache
def gpu_bytes() -> int:
    """Memory of the smallest GPU, in bytes; 0 without a GPU or a working driver."""
    try:
        done = subprocess.run(QUERY, capture_output=True, text=True, timeout=TIMEOUT_S, check=True)
        return min(int(line) * MIB for line in done.stdout.split())
    except (OSError, subprocess.SubprocessError, ValueError):
        return 0


def rank_bytes() -> int:
    """Memory for one rank, in bytes: its GPU's, or what is available on this machine."""
    return gpu_bytes() or int(psutil.virtual_memory().available)
