"""The folder of each session: where it stands, who sees it, and how it goes.

There is one kind for each way in which sessions are kept apart. The zygote makes a folder and
holds it by a descriptor alone; the session's own process enters it; once that process has ended,
`give_up` lets go of it.

Invariants
- In a shared jail no session has a path that leads to another's folder: each is a file system
  that stands nowhere but in its session's own mount namespace, at the same place in each.
- There everything else is read-only, to the zygote as well: what all sessions have in common
  cannot be changed by any, neither contents nor modes, times or attributes.
- To give a folder up needs nothing of the session: what it did to it does not matter.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from typing import Any, Protocol

from ..watching import measure
from . import kernel

_PLACE = "/tmp/session"  # in the jail's own /tmp
_WITHOUT_JAIL = "/tmp/toolsvc-sessions-"
_PAGE = os.sysconf("SC_PAGE_SIZE")


class Homes(Protocol):
    """`root`: descriptor of a folder in whose file system the sessions' files are, if one is.
    `bounded`: the kernel holds the files to their size."""

    root: int
    bounded: bool

    def settle(self) -> None:
        """The zygote has made all that it needs; before the first session."""

    def make(self) -> int:
        """Descriptor of a new, empty folder. Raises OSError if it cannot be made."""

    def enter(self, folder: int) -> None:
        """Called in the session's process: makes the folder its working folder, HOME and TMPDIR.
        Raises OSError."""

    def give_up(self, folder: int) -> int:
        """Takes over the descriptor; the session's processes are gone. The pid of the child that
        is at work on it, 0 if none is."""


class FileSystems:
    """A file system for each session of a shared jail."""

    bounded = True

    def __init__(self, disk_bytes: int) -> None:
        kernel.own_mounts()
        self._options = {
            b"size": str(disk_bytes).encode(),
            b"nr_inodes": str(disk_bytes // measure.BYTES_PER_FILE).encode(),
            b"mode": b"700",
        }
        self.root = _make(_PLACE)

    def settle(self) -> None:
        kernel.make_all_mounts_read_only()
        _live_at(_PLACE)

    def make(self) -> int:
        return kernel.new_file_system(self._options)

    def enter(self, folder: int) -> None:
        kernel.mount_at(folder, _PLACE.encode())
        os.fchdir(folder)

    def give_up(self, folder: int) -> int:
        # The session's mount namespace ended with it, so this was the last that held it.
        os.close(folder)
        return 0


class WholeJail:
    """The one folder of a session that is alone in its jail, and goes with the jail."""

    def __init__(self, disk_bytes: int) -> None:
        self.root = _make(_PLACE)
        self.bounded = measure.file_system_size(self.root) <= disk_bytes + _PAGE

    def settle(self) -> None:
        _live_at(_PLACE)

    def make(self) -> int:
        return os.dup(self.root)

    def enter(self, folder: int) -> None:
        os.fchdir(folder)

    def give_up(self, folder: int) -> int:
        os.close(folder)
        return 0


class Folders:
    """Folders side by side on the host, where there is no jail."""

    bounded = False

    def __init__(self) -> None:
        self.root = _make(f"{_WITHOUT_JAIL}{os.urandom(8).hex()}")

    def settle(self) -> None:
        pass

    def make(self) -> int:
        name = os.urandom(16).hex()
        os.mkdir(name, 0o700, dir_fd=self.root)
        return os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=self.root)

    def enter(self, folder: int) -> None:
        os.fchdir(folder)
        _live_at(os.getcwd())

    def give_up(self, folder: int) -> int:
        """A program removes the folder, because a full one may take long. Files that cannot be
        removed now go with the service."""
        pid = 0
        with contextlib.suppress(OSError):
            pid = remove_tree(folder)
        os.close(folder)
        return pid


def homes(settings: Mapping[str, Any]) -> Homes:
    """The kind for these settings of a zygote."""
    if not settings["jailed"]:
        return Folders()
    disk_bytes = int(settings["disk_bytes"])
    if settings["confinement"]["namespaces"]:
        return FileSystems(disk_bytes)
    return WholeJail(disk_bytes)


def _live_at(path: str) -> None:
    """What programs take for their own folder. Where it is the same in every session, it is said
    once in the zygote."""
    os.environ["HOME"] = os.environ["TMPDIR"] = path


def _make(path: str) -> int:
    os.mkdir(path, 0o700)
    return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)


def remove_tree(folder: int) -> int:
    """Starts the removal of a folder and of all in it, also what its session locked or nested too
    deep for a path. Returns the pid of the program that does it. Raises OSError."""
    path = os.readlink(f"/proc/self/fd/{folder}")
    script = 'chmod -R u+rwx -- "$0"; rm -rf -- "$0"'
    return os.posix_spawn("/bin/sh", ["sh", "-c", script, path], os.environ)
