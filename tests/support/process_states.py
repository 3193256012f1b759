"""The state of every process below this one, for a test that waits too long."""

from __future__ import annotations

import os
from pathlib import Path

import psutil


def process_states() -> str:
    """A line each: pid, parent, state, niceness, CPU seconds, the kernel function that it waits in,
    and its command. The kernel's stack follows if this user may read it."""
    lines = []
    for process in psutil.Process().children(recursive=True):
        folder = Path("/proc") / str(process.pid)
        try:
            with process.oneshot():
                times = process.cpu_times()
                lines.append(
                    f"{process.pid} {process.ppid()} {process.status()} nice {process.nice()} "
                    f"{times.user + times.system:.2f} s {_text(folder / 'wchan')} "
                    f"{' '.join(process.cmdline())[:200]}"
                )
        except psutil.NoSuchProcess:
            continue
        lines += [f"    {line}" for line in _text(folder / "stack").splitlines()[:6]]
        lines.append(f"    open: {_open_files(folder / 'fd')}")
    return "\n".join(lines)


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def _open_files(folder: Path) -> str:
    try:
        names = sorted(os.listdir(folder), key=int)[:12]
        return " ".join(f"{name}={os.readlink(folder / name)}" for name in names)
    except OSError:
        return ""
