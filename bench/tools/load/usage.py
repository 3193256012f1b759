"""What processes use: CPU time of whole trees to the nanosecond, and their memory.

CPU time of a tree = that of every process in it, by its CPU clock (threads that have ended
included), plus that of every child which a process in it has waited for. So a sandbox that ended
meanwhile is counted, whichever pid namespace it lived in, as long as somebody in the tree reaped
it. The kernel's ticks alone would not do: a thousand sessions that use 50 us each stay below one
tick each.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from console.machine.memory import proportional

_TICK_S = 1 / os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")
_PROC = Path("/proc")
_CPUCLOCK_SCHED = 2  # kernel: include/linux/posix-timers.h


@dataclass(frozen=True, slots=True, kw_only=True)
class _Process:
    pid: int
    parent: int
    reaped_s: float


def tree(roots: Iterable[int]) -> list[int]:
    """`roots` and everything below them, dead children that nobody reaped included."""
    return [process.pid for process in _tree(roots)]


def cpu_seconds(roots: Iterable[int]) -> float:
    """CPU time that the trees below `roots` have used so far."""
    return sum(_cpu_clock(one.pid) + one.reaped_s for one in _tree(roots))


def thread_seconds(pid: int) -> list[float]:
    """CPU time of the threads that a process has now, to the tick: the main one first, then the
    others, the busiest first. Empty for a process that has ended."""
    found: dict[int, float] = {}
    with suppress(FileNotFoundError, ProcessLookupError):
        for name in os.listdir(_PROC / str(pid) / "task"):
            text = (_PROC / str(pid) / "task" / name / "stat").read_text(
                errors="replace", encoding="utf-8"
            )
            fields = text.rpartition(")")[2].split()
            found[int(name)] = (int(fields[11]) + int(fields[12])) * _TICK_S
    main = found.pop(pid, None)
    return [] if main is None else [main, *sorted(found.values(), reverse=True)]


def resident(pids: Iterable[int]) -> int:
    """Bytes: the sum of RSS. Pages that processes share count in each of them."""
    return sum(map(_resident, pids))


def proportional_all(pids: Iterable[int]) -> int:
    """Bytes: the sum of PSS, which is what the processes take together."""
    return sum(map(proportional, pids))


def _tree(roots: Iterable[int]) -> list[_Process]:
    every = {one.pid: one for one in _processes()}
    below: dict[int, list[int]] = {}
    for one in every.values():
        below.setdefault(one.parent, []).append(one.pid)
    found: dict[int, _Process] = {}
    ahead = [pid for pid in roots if pid in every]
    while ahead:
        pid = ahead.pop()
        if pid not in found:  # A root may stand below another.
            found[pid] = every[pid]
            ahead += below.get(pid, ())
    return list(found.values())


def _processes() -> Iterable[_Process]:
    for name in os.listdir(_PROC):
        if name.isdigit():
            with suppress(FileNotFoundError, ProcessLookupError):
                text = (_PROC / name / "stat").read_text(errors="replace", encoding="utf-8")
                # The name of the program stands in brackets and may hold anything.
                fields = text.rpartition(")")[2].split()
                yield _Process(
                    pid=int(name),
                    parent=int(fields[1]),
                    reaped_s=(int(fields[13]) + int(fields[14])) * _TICK_S,
                )


def _cpu_clock(pid: int) -> float:
    """What clock_getcpuclockid(3) and clock_gettime(2) give for another process."""
    with suppress(OSError):
        return time.clock_gettime(~pid << 3 | _CPUCLOCK_SCHED)
    return 0.0


def _resident(pid: int) -> int:
    with suppress(FileNotFoundError, ProcessLookupError):
        return int((_PROC / str(pid) / "statm").read_text(encoding="utf-8").split()[1]) * _PAGE
    return 0
