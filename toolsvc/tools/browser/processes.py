"""Facts from the kernel about a page's process, the renderer, and the browser's other processes."""

from __future__ import annotations

from pathlib import Path

_FILTER = "2"
"""Value of `Seccomp` while a filter is in force."""


def confined(pid: int) -> list[str]:
    """What the renderer's sandbox lacks: [] = it is not root, has no capabilities, is in a process
    namespace of its own, and under a system call filter."""
    status = read_status(pid)
    if not status:
        return []
    faults = []
    if "0" in status["Uid"].split():
        faults.append("a page runs as root")
    if int(status["CapEff"], 16):
        faults.append("a page has capabilities")
    if status["Seccomp"] != _FILTER:
        faults.append("no system call filter")
    if len(status["NSpid"].split()) < 2:
        faults.append("no namespace of its own")
    return faults


def own_memory(pid: int) -> int:
    """Bytes that it holds and no file backs; 0 once it is gone."""
    status = read_status(pid)
    return sum(_bytes(status.get(name, "0 kB")) for name in ("RssAnon", "RssShmem"))


def read_status(pid: int) -> dict[str, str]:
    """The fields of /proc/PID/status; {} once it is gone."""
    try:
        text = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    except (FileNotFoundError, ProcessLookupError):
        return {}
    return {
        name: value.strip()
        for name, _, value in (line.partition(":") for line in text.splitlines())
    }


def _bytes(text: str) -> int:
    return int(text.split()[0]) * 1024
