"""The memory of this process and all below it: the sum of their PSS, and its peak.

PSS counts a page that n processes share as 1/n in each, so the sum is what the whole takes.
Where the kernel does not show a process's PSS (a sandboxed child of another user), its private
resident pages stand for it, which is never more. The kernel walks every page for it, so large
processes are looked at less often.
"""

from __future__ import annotations

import asyncio
import os
import time
from contextlib import suppress
from pathlib import Path

import psutil

from console.machine.processes import descendants

INTERVAL_S = 2.0
MOST_SHARE = 0.02
"""Largest share of one core's time."""
LONGEST_PAUSE_S = 30.0
"""A peak that is shorter is missed; a share kept to the letter would miss longer ones."""
_PAGE = os.sysconf("SC_PAGE_SIZE")


class MemoryMeter:
    """Samples until it is cancelled; `peak` and `now` in bytes."""

    def __init__(self) -> None:
        self.now = 0
        self.peak = 0

    async def run(self) -> None:
        while True:
            self.now, took_s = await asyncio.to_thread(_measured)
            self.peak = max(self.peak, self.now)
            await asyncio.sleep(pause(took_s))


def pause(took_s: float) -> float:
    """Seconds until the next look, after one that took `took_s` seconds of a core."""
    return min(LONGEST_PAUSE_S, max(INTERVAL_S, took_s / MOST_SHARE))


def _measured() -> tuple[int, float]:
    """Bytes, and the seconds of a core that it took: of this thread, since a busy machine or a
    waiting disk says nothing of what looking costs."""
    began = time.thread_time()
    return total(), time.thread_time() - began


def total() -> int:
    """Bytes of this process and all below it."""
    try:
        pids = [os.getpid(), *(process.pid for process in descendants())]
    except psutil.NoSuchProcess:
        pids = [os.getpid()]
    return sum(proportional(pid) for pid in pids)


def proportional(pid: int) -> int:
    """PSS of one process in bytes; 0 for one that has ended."""
    folder = Path("/proc") / str(pid)
    with suppress(PermissionError):
        try:
            for line in (folder / "smaps_rollup").read_text(encoding="utf-8").splitlines():
                if line.startswith("Pss:"):
                    return int(line.split()[1]) * 1024
        except (FileNotFoundError, ProcessLookupError):
            return 0
    with suppress(FileNotFoundError, ProcessLookupError):
        _size, resident, shared, *_rest = (folder / "statm").read_text(encoding="utf-8").split()
        return max(0, int(resident) - int(shared)) * _PAGE
    return 0


def resident_peak(pid: int) -> int:
    """Bytes: the largest RSS that a process has had; 0 for one that has ended."""
    with suppress(FileNotFoundError, ProcessLookupError):
        for line in (Path("/proc") / str(pid) / "status").read_text(encoding="utf-8").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
        return psutil.Process(pid).memory_info().rss  # a kernel that does not keep the peak
    return 0
