"""Measures the use of a session: bytes in files and in memory, locks, threads.

Foreign code made these files and processes, and may change them at any moment. So each of them may
be missing, unreadable or changed.
"""

from __future__ import annotations

import contextlib
import os
from typing import NamedTuple

BYTES_PER_FILE = 4096
_BYTES_OF_A_RECORD = 1024
"""An empty file takes memory too."""
_PAGE = os.sysconf("SC_PAGE_SIZE")
_HELD_BY_KERNEL = {"socket": 256 * 1024, "pipe": 64 * 1024}
"""Bytes that wait in one, at most, by how /proc names it. A socket's: the system's default."""
_MAPPING_BYTES = 256
_MAPPINGS = 65530
"""Most mappings of one process: the kernel's default."""
_LOCKS_READ = 1024 * 1024
"""Characters: some twenty thousand locks."""
_MAPPINGS_READ = 64 * 1024
"""Characters of the list, which has some hundred lines for most programs."""


class Process(NamedTuple):
    """A process at one moment. `held`: bytes in memory and swapped out, and `tables`, by which the
    kernel finds them. `mapped`: bytes of its address space."""

    pid: int
    parent: int
    running: bool
    threads: int
    held: int
    tables: int
    mapped: int


def look_at(pid: int) -> Process | None:
    """A look at one process; None if it is gone. It reads what every account may read: a process
    can hide the rest."""
    try:
        descriptor = os.open(f"/proc/{pid}/status", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        text = os.read(descriptor, _PAGE)
    except OSError:
        return None
    finally:
        os.close(descriptor)
    tables = _field(text, b"VmPTE") * 1024
    return Process(
        pid,
        _field(text, b"PPid"),
        b"\nState:\tR" in text,
        _field(text, b"Threads"),
        (_field(text, b"VmRSS") + _field(text, b"VmSwap")) * 1024 + tables,
        tables,
        _field(text, b"VmSize") * 1024,
    )


def _field(status: bytes, name: bytes) -> int:
    """0 without such a field, as for a process that has ended."""
    # A program's name, which it chooses, stands there with its line breaks escaped.
    found = status.partition(b"\n" + name + b":")[2].split(None, 1)
    return int(found[0]) if found else 0


def parse_resident(statm: bytes) -> int:
    """Bytes, from the text of a /proc/PID/statm; 0 for a process that is gone."""
    fields = statm.split(None, 2)
    return int(fields[1]) * _PAGE if len(fields) > 1 else 0


def exact_bytes(process: Process) -> int | None:
    """What is shared with others counted in parts, where the process lets that be seen. None if it
    has gone."""
    try:
        with open(f"/proc/{process.pid}/smaps_rollup", "rb") as file:
            parts = [line.split() for line in file if line.startswith((b"Pss:", b"SwapPss:"))]
    except (FileNotFoundError, ProcessLookupError):
        return None
    except OSError:
        return process.held
    return sum(int(part[1]) * 1024 for part in parts) + process.tables


def kernel_bytes(process: Process, open_files: int, seen: set[str]) -> int:
    """What the kernel holds for its sockets, pipes and mappings, at most. `open_files`: how many it
    may have. `seen`: what was counted already, which grows."""
    try:
        names = os.listdir(f"/proc/{process.pid}/fd")
    except OSError:  # It hides.
        return open_files * _HELD_BY_KERNEL["socket"] + _mappings(process) * _MAPPING_BYTES
    total = _mappings(process) * _MAPPING_BYTES
    for name in names:
        with contextlib.suppress(OSError):
            file = os.readlink(f"/proc/{process.pid}/fd/{name}")
            if file not in seen:
                seen.add(file)
                total += _HELD_BY_KERNEL.get(file.partition(":")[0], 0)
    return total


def _mappings(process: Process) -> int:
    """Number of mappings: exact if they are few, else as many as its address space may hold."""
    with contextlib.suppress(OSError), open(f"/proc/{process.pid}/maps", "rb", 0) as file:
        count = read = 0
        while read < _MAPPINGS_READ:
            text = file.read(_PAGE)
            if not text:
                return count
            count += text.count(b"\n")
            read += len(text)
    return min(process.mapped // _PAGE, _MAPPINGS)


def locks() -> list[int]:
    """Process of each file lock that is held or awaited, as far as `_LOCKS_READ` tells."""
    try:
        with open("/proc/locks", "rb", 0) as file:
            text = b""
            while len(text) < _LOCKS_READ and (more := file.read(_LOCKS_READ)):
                text += more
    except OSError:
        return []
    found = []
    for line in text.splitlines():
        # 7: -> POSIX  ADVISORY  WRITE 1234 00:2d:5 0 EOF
        words = line.partition(b"ADVISORY")[2].split(None, 2)
        if len(words) > 1:
            found.append(int(words[1]))
    return found


def running_threads(process: Process) -> list[int]:
    """Threads that compute, or would if a processor were free."""
    if process.threads <= 1:
        return [process.pid] if process.running else []
    found = []
    for thread in threads(process.pid):
        path = f"/proc/{process.pid}/task/{thread}/stat"
        with contextlib.suppress(OSError), open(path, "rb") as file:
            # The program's name stands in parentheses and may hold any byte.
            if file.read().rpartition(b")")[2].split(None, 1)[0] == b"R":
                found.append(thread)
    return found


def threads(pid: int) -> list[int]:
    try:
        return [int(name) for name in os.listdir(f"/proc/{pid}/task")]
    except OSError:
        return []


def stored_bytes(file: int) -> int:
    """Bytes in use by an open file."""
    return os.fstat(file).st_blocks * 512


def file_system_size(folder: int) -> int:
    status = os.fstatvfs(folder)
    return status.f_blocks * status.f_frsize


def file_system_bytes(folder: int) -> int:
    """Bytes in use in the file system that holds `folder`, including its files' own records."""
    status = os.fstatvfs(folder)
    blocks = (status.f_blocks - status.f_bfree) * status.f_frsize
    return int(blocks + (status.f_files - status.f_ffree) * _BYTES_OF_A_RECORD)


def descendants(ancestor: int) -> list[int]:
    """Every process below `ancestor`, as it is now."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError, ValueError):
                with open(f"/proc/{name}/stat", "rb") as file:
                    # The program's name stands in parentheses and may hold any byte.
                    parent = int(file.read().rpartition(b")")[2].split()[1])
                children.setdefault(parent, []).append(int(name))
    found: list[int] = []
    waiting = [ancestor]
    while waiting:
        below = children.pop(waiting.pop(), [])
        found += below
        waiting += below
    return found
