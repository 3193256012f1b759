"""Finds the sessions that hold more memory or more files than one may.

The kernel's limits are for one process; these are for all processes of a session together.

Invariants
- One look at the memory costs a few microseconds a session, whatever the session does: a jail
  may hold thousands.
- One look at the files takes a bounded time; what it did not get to is first next time.
- Where each session has a file system of its own, the kernel holds it to its size; then only
  what all of them take together is watched, since they are kept in the machine's memory.

It names who is to end; ending is the zygote's.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from typing import Any, NamedTuple

from . import measure

_FILES_SECONDS = 0.02
_MEMORY_BYTES = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
_MEMORY_SHARE = 8
"""The files of a jail's sessions never take more than this part of the machine's memory."""


class Member:
    """A session's first process, as its parent knows it."""

    __slots__ = ("_namespace", "_size", "folder", "number", "pid")

    def __init__(self, pid: int, number: int, folder: int) -> None:
        """Takes over `folder`, an O_PATH descriptor."""
        self.pid = pid
        self.number = number
        self.folder = folder
        self._size = -1
        self._namespace = ""

    @property
    def namespace(self) -> str:
        """Of its process numbers."""
        if not self._namespace:
            self._namespace = measure.pid_namespace(self.pid)
        return self._namespace

    def resident_bytes(self) -> int:
        # Kept open: finding the file anew each time would cost five times the reading.
        try:
            if self._size < 0:
                self._size = os.open(f"/proc/{self.pid}/statm", os.O_RDONLY | os.O_CLOEXEC)
            return measure.parse_resident(os.pread(self._size, 256, 0))
        except OSError:
            return 0

    def forget(self) -> None:
        """Its process is gone; `folder` is the caller's again."""
        if self._size >= 0:
            os.close(self._size)
            self._size = -1


class Excess(NamedTuple):
    """A session above a limit, what the host is told of it, and all its processes if known."""

    member: Member
    event: dict[str, Any]
    processes: list[int]


class Watch:
    def __init__(self, root: int, settings: Mapping[str, Any], *, own_file_systems: bool) -> None:
        """`root`: descriptor of the folder that holds all session folders."""
        self._root = root
        self._own_file_systems = own_file_systems
        self._shared = bool(settings["confinement"]["namespaces"])
        self._jailed = bool(settings["jailed"])
        self._memory_bytes = int(settings["memory_bytes"])
        self._disk_bytes = int(settings["disk_bytes"])
        self._seen = 0

    def over_memory(
        self, members: Mapping[int, Member], helpers: AbstractSet[int]
    ) -> Iterator[Excess]:
        """The cheap look counts pages that are still shared with the zygote as if they were the
        session's own, so only sessions that fail it get the exact figure.

        `helpers`: processes of the zygote's own.
        """
        others = self._others(members, helpers)
        for pid, member in list(members.items()):
            more = others.get(pid, [])
            size = member.resident_bytes() + sum(map(measure.resident_bytes, more))
            if size <= self._memory_bytes:
                continue
            processes = [pid, *more]
            held = sum(map(measure.proportional_bytes, processes))
            if held > self._memory_bytes:
                event = {"event": "over_memory", "id": member.number, "held": held}
                yield Excess(member, event, processes)

    def over_disk(self, members: Mapping[int, Member]) -> Iterator[Excess]:
        """While all together store less than one may, nobody has to be measured."""
        if self._own_file_systems:
            sizes = [measure.file_system_bytes(member.folder) for member in members.values()]
            if sum(sizes) > _MEMORY_BYTES // _MEMORY_SHARE:
                fullest = max(zip(sizes, members, strict=True))[1]
                yield self._too_full(members[fullest], together=sum(sizes))
            return
        if self._jailed:
            if measure.file_system_bytes(self._root) <= self._disk_bytes:
                return
            if not self._shared:
                # Alone in its jail: whatever is in the file system is its own.
                yield from (self._too_full(member) for member in list(members.values()))
                return
        waiting = sorted(members.values(), key=lambda member: member.number <= self._seen)
        until = time.monotonic() + _FILES_SECONDS
        for member in waiting:
            self._seen = member.number
            if measure.tree_bytes(member.folder, self._disk_bytes) > self._disk_bytes:
                yield self._too_full(member)
            if time.monotonic() > until:
                return

    def _too_full(self, member: Member, *, together: int = 0) -> Excess:
        event = {"event": "over_disk", "id": member.number, "together": together}
        return Excess(member, event, [])

    def _others(
        self, members: Mapping[int, Member], helpers: AbstractSet[int]
    ) -> dict[int, list[int]]:
        """The processes of each session, beside its first."""
        if not self._shared:
            below = measure.descendants(os.getpid())
            rest = [pid for pid in below if pid not in members and pid not in helpers]
            return dict.fromkeys(members, rest)
        others: dict[int, list[int]] = {}
        leaders: dict[str, int] = {}
        me = os.getpid()
        for name in os.listdir("/proc"):
            if not name.isdigit():
                continue
            pid = int(name)
            if pid in members or pid in helpers or pid in (1, me):
                continue
            if not leaders:
                leaders = {member.namespace: member.pid for member in members.values()}
            with contextlib.suppress(KeyError):
                others.setdefault(leaders[measure.pid_namespace(pid)], []).append(pid)
        return others
