"""What an index costs: CPU time and private memory of the process that builds it, bytes on disk.

Private memory is what a machine must have. Pages of a mapped file (the vectors that are read, an
index that is served) are not counted: the kernel takes them back where it needs room.
"""

from __future__ import annotations

import asyncio
import resource
from collections.abc import Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import psutil

from console.machine.processes import descendants

INTERVAL_S = 0.2

T = TypeVar("T")


async def peak_beside(work: Coroutine[Any, Any, T]) -> tuple[T, int]:
    """The result of `work`, and the largest private memory in bytes that all processes below this
    one had meanwhile, looked at every INTERVAL_S."""
    task = asyncio.create_task(work)
    peak = 0
    try:
        while not task.done():
            peak = max(peak, await asyncio.to_thread(_below))
            await asyncio.wait({task}, timeout=INTERVAL_S)
        return task.result(), peak
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def private(pid: int) -> int:
    """Bytes of a process that no file stands behind; 0 for one that has ended."""
    with suppress(FileNotFoundError, ProcessLookupError):
        for line in Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines():
            if line.startswith("RssAnon:"):
                return int(line.split()[1]) * 1024
    return 0


def cpu_of_ended() -> float:
    """CPU seconds of all processes that were started here, or by those, and have ended."""
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    return spent.ru_utime + spent.ru_stime


def on_disk(folder: Path) -> int:
    """Bytes of all files below."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def _below() -> int:
    with suppress(psutil.NoSuchProcess):
        return sum(private(process.pid) for process in descendants())
    return 0
