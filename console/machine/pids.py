"""Whether a process that a file names runs here, and whether it is what the file calls it.

A pid means something on one machine, until its next boot, in one pid namespace. A run folder may
have been copied from anywhere, or written by a stranger to have another process ended.
"""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from console.machine.processes import alive
from console.record.course import Began, CourseRecord, boot_id


def pid_space() -> str:
    """This boot of the kernel and this pid namespace. Empty if the system does not name them."""
    boot = boot_id()
    try:
        return f"{boot} {os.readlink('/proc/self/ns/pid')}" if boot else ""
    except OSError:
        return ""


def same_space(start: Began) -> bool:
    """Whether pids of that start mean something now, on this machine and since this boot."""
    return bool(start.space) and (start.host, start.space) == (socket.gethostname(), pid_space())


def lives(start: Began) -> bool | None:
    """Whether the process of that start runs on this machine. None if that cannot be known from
    here: another machine's, another container's, or a record without a pid space."""
    if same_space(start):
        return alive(start.pid, start.created)
    boot, ours = start.space.partition(" ")[0], boot_id()
    is_ours = start.host == socket.gethostname() and boot and ours
    return False if is_ours and boot != ours else None


def is_here(course: CourseRecord) -> bool:
    """Whether pids of the last start mean something on this machine."""
    return bool(course.starts) and lives(course.starts[-1]) is not None


def lives_in(course: CourseRecord) -> Callable[[int, float], bool]:
    """Whether a process of the last start lives, by pid and creation time. Nothing of an earlier
    boot does."""
    if course.starts and same_space(course.starts[-1]):
        return alive
    return lambda _pid, _created: False


def has_open(pid: int, path: Path) -> bool:
    """Whether the process has that file open. False for a link, and for a file with two names."""
    try:
        wanted = path.lstat()
    except OSError:
        return False
    if not stat.S_ISREG(wanted.st_mode) or wanted.st_nlink > 1:
        return False
    with suppress(OSError):
        for entry in os.scandir(f"/proc/{pid}/fd"):
            with suppress(OSError):
                found = os.stat(entry.path)
                if (found.st_dev, found.st_ino) == (wanted.st_dev, wanted.st_ino):
                    return True
    return False
