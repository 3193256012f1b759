"""What a session holds: bytes in files, bytes in memory; and the removal of its files.

Everything here looks at things that foreign code made or is changing at the same moment, so
nothing is trusted to be there, to be readable or to stay what it was.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
from typing import Any

BYTES_PER_FILE = 4096
_PAGE = os.sysconf("SC_PAGE_SIZE")


def remove_tree(path: str) -> None:
    """Removes what a session left, folders that it locked against itself included."""

    def unlock(function: Any, failed: str, _: Any) -> None:
        try:
            os.chmod(os.path.dirname(failed), stat.S_IRWXU)
            if os.path.isdir(failed) and not os.path.islink(failed):
                os.chmod(failed, stat.S_IRWXU)
                shutil.rmtree(failed, ignore_errors=True)
            else:
                os.unlink(failed)
        except OSError:
            pass

    shutil.rmtree(path, onerror=unlock)


def tree_bytes(top: int, at_most: int) -> int:
    """Bytes in use below the folder `top`, never following links; stops counting above `at_most`.
    A folder that cannot be read counts as too much: nobody but the session can have locked it."""
    total = 0
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    waiting: list[tuple[int, str]] = [(os.dup(top), ".")]
    while waiting:
        parent, name = waiting.pop()
        try:
            here = os.open(name, flags, dir_fd=parent)
        except FileNotFoundError:
            continue
        except OSError:
            total = at_most + 1
            continue
        finally:
            os.close(parent)
        try:
            with os.scandir(here) as entries:
                for entry in entries:
                    with contextlib.suppress(FileNotFoundError):
                        status = entry.stat(follow_symlinks=False)
                        # An empty file takes memory too.
                        total += status.st_blocks * 512 + BYTES_PER_FILE // 4
                        if stat.S_ISDIR(status.st_mode) and total <= at_most:
                            waiting.append((os.dup(here), entry.name))
        finally:
            os.close(here)
    return total


def resident_bytes(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/statm", "rb") as file:
            return int(file.read().split()[1]) * _PAGE
    except (OSError, IndexError):
        return 0


def proportional_bytes(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/smaps_rollup", "rb") as file:
            for line in file:
                if line.startswith(b"Pss:"):
                    return int(line.split()[1]) * 1024
    except OSError:
        return resident_bytes(pid)
    return 0


def pid_namespace(pid: int) -> str:
    try:
        return os.readlink(f"/proc/{pid}/ns/pid")
    except OSError:
        return ""
