"""Ranks that do not answer: which they are, and the sentence that says so.

A rank whose collective fails writes a mark to the store of the process group. It waits a little for
the marks of the others. A rank without one hangs, or is gone.

With NCCL its watchdog ends the process instead: see `learner.launch`.
"""

from __future__ import annotations

import time
import traceback
from datetime import timedelta
from pathlib import Path

import torch.distributed as dist
from torch.distributed.distributed_c10d import _get_default_store

from learner.errors import RanksError

MARKS_S = 10.0
"""Longest time that a rank waits for the marks of the others."""
STEP_S = 0.1
RANKS = Path(__file__).parent
LEARNER = RANKS.parent


def lost(error: RuntimeError, wait: timedelta) -> RanksError | None:
    """The error as a sentence; None if it is not of a collective. wait: the group's timeout."""
    if not isinstance(error, dist.DistError) and "/gloo/" not in str(error):
        return None
    where = f" in {_place(error)}"
    if not dist.is_initialized():
        return RanksError(
            f"the ranks did not all meet within {wait.total_seconds():g} s: start as many as "
            f"WORLD_SIZE says, with one MASTER_ADDR and MASTER_PORT ({_first_line(error)})"
        )
    rank, silent = dist.get_rank(), _silent()
    if not silent:
        return RanksError(
            f"rank {rank} lost its connection{where}, and all ranks still run: look at the network "
            f"between the machines ({_first_line(error)})"
        )
    others = f"rank{'s' if len(silent) > 1 else ''} {', '.join(map(str, silent))}"
    return RanksError(
        f"rank {rank} waited{where}, and {others} did not answer: look at the last lines of "
        f"{others}, and at its machine (memory, disk, GPU). If it was only slow, raise "
        f"parallel.timeout_s ({_first_line(error)})"
    )


def _silent() -> list[int]:
    """Ranks that leave no mark. Those whose marks cannot be read count as silent."""
    ranks, rank = range(dist.get_world_size()), dist.get_rank()
    missing = [other for other in ranks if other != rank]
    try:
        store = _get_default_store()
        store.set(f"lost/{rank}", "here")
        until = time.monotonic() + MARKS_S
        while missing and time.monotonic() < until:
            missing = [other for other in missing if not store.check([f"lost/{other}"])]
            time.sleep(STEP_S if missing else 0)
    except RuntimeError:  # the store is gone with rank 0
        return missing
    return missing


def _place(error: BaseException) -> str:
    """The innermost function of the learner that led to the error, below this package."""
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        file = Path(frame.filename)
        if LEARNER in file.parents and RANKS not in file.parents:
            return f"{file.name}, {frame.name}"
    return "a collective"


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
