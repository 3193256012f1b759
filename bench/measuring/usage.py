"""CPU time and memory of processes.

The CPU time of a tree is the sum over its processes, by their CPU clocks, and over the children
that they have reaped. So a sandbox that has ended is counted, in whichever pid namespace it ran.
Ticks of the kernel are too coarse: a thousand sessions that use 50 us each stay below one tick
each.

Private memory of a process is what the machine must have for it. Pages of a mapped file do not
count: the kernel can drop them.
"""

from __future__ import annotations

import asyncio
import os
import resource
import time
from collections.abc import Coroutine, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import psutil

from console.machine.memory import proportional
from console.machine.processes import descendants

PEAK_INTERVAL_S = 0.2
_TICK_S = 1 / os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")
_PROC = Path("/proc")
_CPUCLOCK_SCHED = 2  # kernel: include/linux/posix-timers.h

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Process:
    pid: int
    parent: int
    reaped_s: float


def tree(roots: Iterable[int]) -> list[int]:
    """`roots` and all processes below them, dead children that were not reaped included."""
    return [process.pid for process in _tree(roots)]


def cpu_seconds(roots: Iterable[int]) -> float:
    """CPU time that the trees below `roots` have used so far."""
    return sum(_cpu_clock(one.pid) + one.reaped_s for one in _tree(roots))


def cpu_of_ended() -> float:
    """CPU seconds of all ended processes below this one."""
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    return spent.ru_utime + spent.ru_stime


def thread_seconds(pid: int) -> list[float]:
    """CPU time of each thread of a process, to the tick: the main thread first, then the others,
    the busiest first. Empty for a process that has ended."""
    found: dict[int, float] = {}
    with suppress(FileNotFoundError, ProcessLookupError):
        for name in os.listdir(_PROC / str(pid) / "task"):
            fields = _stat(f"{pid}/task/{name}")
            found[int(name)] = (int(fields[11]) + int(fields[12])) * _TICK_S
    main = found.pop(pid, None)
    return [] if main is None else [main, *sorted(found.values(), reverse=True)]


def resident(pids: Iterable[int]) -> int:
    """Sum of RSS in bytes. A page that processes share counts in each of them."""
    return sum(map(_resident, pids))


def proportional_all(pids: Iterable[int]) -> int:
    """Sum of PSS in bytes: the memory that the processes take together."""
    return sum(map(proportional, pids))


def private(pid: int) -> int:
    """Private memory of a process in bytes; 0 for a process that has ended."""
    with suppress(FileNotFoundError, ProcessLookupError):
        for line in (_PROC / str(pid) / "status").read_text(encoding="utf-8").splitlines():
            if line.startswith("RssAnon:"):
                return int(line.split()[1]) * 1024
    return 0


async def peak_beside(work: Coroutine[Any, Any, T]) -> tuple[T, int]:
    """The result of `work`, and the peak in bytes of the private memory of all processes below this
    one, sampled each PEAK_INTERVAL_S."""
    task = asyncio.create_task(work)
    peak = 0
    try:
        while not task.done():
            peak = max(peak, await asyncio.to_thread(_private_below))
            await asyncio.wait({task}, timeout=PEAK_INTERVAL_S)
        return task.result(), peak
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def on_disk(folder: Path) -> int:
    """Bytes of all files below a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def _tree(roots: Iterable[int]) -> list[_Process]:
    every = {one.pid: one for one in _processes()}
    below: dict[int, list[int]] = {}
    for one in every.values():
        below.setdefault(one.parent, []).append(one.pid)
    found: dict[int, _Process] = {}
    left = [pid for pid in roots if pid in every]
    while left:
        pid = left.pop()
        if pid not in found:  # A root may stand below another.
            found[pid] = every[pid]
            left += below.get(pid, ())
    return list(found.values())


def _processes() -> Iterator[_Process]:
    for name in os.listdir(_PROC):
        if name.isdigit():
            with suppress(FileNotFoundError, ProcessLookupError):
                fields = _stat(name)
                yield _Process(
                    pid=int(name),
                    parent=int(fields[1]),
                    reaped_s=(int(fields[13]) + int(fields[14])) * _TICK_S,
                )


def _stat(place: str) -> list[str]:
    """Fields of a stat file after the program's name, which stands in brackets and may hold any
    characters."""
    text = (_PROC / place / "stat").read_text(errors="replace", encoding="utf-8")
    return text.rpartition(")")[2].split()


def _cpu_clock(pid: int) -> float:
    """CPU clock of another process: clock_getcpuclockid(3) and clock_gettime(2)."""
    with suppress(OSError):
        return time.clock_gettime(~pid << 3 | _CPUCLOCK_SCHED)
    return 0.0


def _resident(pid: int) -> int:
    with suppress(FileNotFoundError, ProcessLookupError):
        return int((_PROC / str(pid) / "statm").read_text(encoding="utf-8").split()[1]) * _PAGE
    return 0


def _private_below() -> int:
    with suppress(psutil.NoSuchProcess):
        return sum(private(process.pid) for process in descendants())
    return 0
