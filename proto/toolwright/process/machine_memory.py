"""Memory that a learner's rank could use on this machine, found without torch."""

from __future__ import annotations

import os
import subprocess
from functools import cache

import psutil

MIB = 1 << 20
TIMEOUT_S = 10.0
VISIBLE = "CUDA_VISIBLE_DEVICES"
HIDDEN = ("", "-1")
"""Values that hide every GPU from CUDA."""
QUERY = ("nvidia-smi", "--query-gpu=memory.total", "--format=csv,noheader,nounits")


@cache
def gpu_bytes() -> int:
    """Memory of the smallest GPU, in bytes; 0 if none is visible or no driver works."""
    if os.environ.get(VISIBLE) in HIDDEN:
        return 0
    try:
        done = subprocess.run(QUERY, capture_output=True, text=True, timeout=TIMEOUT_S, check=True)
        return min(int(line) * MIB for line in done.stdout.split())
    except (OSError, subprocess.SubprocessError, ValueError):
        return 0


def rank_bytes() -> int:
    """Memory for one rank, in bytes: its GPU's, or what is available on this machine."""
    return gpu_bytes() or int(psutil.virtual_memory().available)
