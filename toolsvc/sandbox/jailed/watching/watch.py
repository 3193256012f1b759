"""Finds the sessions above their limit of memory, files, locks or computing threads.

The kernel's limits are for one process; these are for all processes of a session together.

Invariants
- A process belongs to the session of its parents: no process can hide or change its parents, but it
  can lock its own files in /proc.
- One look at the memory costs a few microseconds a session that has one process, and some ten for
  each further one, whatever the session does: a jail may hold thousands.
- One look at the exact figures of memory takes a bounded time; what was not got to is first next
  time.
- Where each session has a file system of its own, the kernel holds it to its size; then only
  what all of them take together is watched, since they are kept in the machine's memory.

It only names sessions; the zygote ends them or lowers their priority.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from typing import Any, NamedTuple

from . import measure, share

_MEMORY_BYTES = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
_MEMORY_SHARE = 8
"""The files of a jail's sessions never take more than this part of the machine's memory."""
_FULL_LOOK = 8
"""A session's first process gets a full look one time in this many. A full look costs four times as
much as a look at its memory, and the other figures (tables, threads) grow slowly."""
_MANY = 4
"""Processes beside a session's first: what the kernel holds for fewer is little."""
_KERNEL_LOOK = 4
"""Kernel memory of a session with that many processes is measured one time in this many."""
_EXACT_SECONDS = 0.1
_LOCKS = 2000
"""Maximum file locks of one session: each takes some 200 bytes of the kernel, which no other figure
shows."""
_LOCKS_LOOK = 4
"""The list of locks is read one time in so many: meanwhile no process of the machine can lock
anything."""
_STEPS = 200
"""Maximum steps from a process up to its session's first process; a session has fewer processes."""


class Member:
    """A session's first process, as its parent knows it."""

    def __init__(self, pid: int, number: int, folder: int, output: int) -> None:
        """Takes over `folder`, an O_PATH descriptor, and `output`, the file that it prints to."""
        self.pid = pid
        self.number = number
        self.folder = folder
        self.threads = 1
        self.kernel = 0
        """Bytes that the kernel holds for its processes, if those are many."""
        self.doubted = False
        """The last exact figure was too much, and counted processes that had gone."""
        self._output = output
        self._size = -1
        self._tables = 0

    def look(self) -> measure.Process | None:
        """Closely."""
        process = measure.look_at(self.pid)
        if process is not None:
            self.threads, self._tables = process.threads, process.tables
        return process

    def held_bytes(self) -> int:
        """Pages that it shares with the zygote counted as its own."""
        # Kept open: finding the file anew each time would cost five times the reading.
        try:
            if self._size < 0:
                self._size = os.open(f"/proc/{self.pid}/statm", os.O_RDONLY | os.O_CLOEXEC)
            resident = measure.parse_resident(os.pread(self._size, 256, 0))
        except OSError:
            resident = 0
        return resident + self._tables + self.printed_bytes()

    def printed_bytes(self) -> int:
        """What it, or what it left running, wrote to its output: kept in memory, by no process."""
        return measure.stored_bytes(self._output)

    def forget(self) -> None:
        """Its process is gone; `folder` is the caller's again."""
        os.close(self._output)
        if self._size >= 0:
            os.close(self._size)
            self._size = -1


Others = Mapping[int, list[measure.Process]]
"""The processes of each session beside its first, by the number of that."""


class Excess(NamedTuple):
    """A session above a limit, the message to the host, and all its processes if known."""

    member: Member
    event: dict[str, Any]
    processes: list[int]


class SessionWatch:
    def __init__(self, root: int, settings: Mapping[str, Any], *, own_file_systems: bool) -> None:
        """`root`: descriptor of the folder that holds all session folders."""
        self._root = root
        self._own_file_systems = own_file_systems
        self._shared = bool(settings["confinement"]["namespaces"])
        self._jailed = bool(settings["jailed"])
        self._memory_bytes = int(settings["memory_bytes"])
        self._disk_bytes = int(settings["disk_bytes"])
        self._open_files = int(settings["confinement"]["limits"]["open_files"])
        self._measured = 0
        self._looks = 0
        self._lock_looks = 0

    def others(self, members: Mapping[int, Member], helpers: AbstractSet[int]) -> Others:
        """`helpers`: processes of the zygote's own."""
        me = os.getpid()
        if not self._shared:
            below = measure.descendants(me)
            numbers = [pid for pid in below if pid not in members and pid not in helpers]
            more = [process for process in map(measure.look_at, numbers) if process is not None]
            return {first: more for first in members}
        numbers = [int(name) for name in os.listdir("/proc") if name.isdigit()]
        found: dict[int, measure.Process] = {}
        for pid in numbers:
            if pid not in members and pid not in helpers and pid not in (1, me):
                process = measure.look_at(pid)
                if process is not None:
                    found[pid] = process
        others: dict[int, list[measure.Process]] = {}
        for process in found.values():
            first = _first_of(process, found, members)
            if first is not None:
                others.setdefault(first, []).append(process)
        return others

    def over_memory(self, members: Mapping[int, Member], others: Others) -> Iterator[Excess]:
        """The cheap look counts pages that are shared with the zygote, or with each other, as each
        process's own. So only sessions that fail it get the exact figure.

        The cheap look also counts a process that has gone since; then the next look decides.
        Processes that ended together are not there any more. Processes that each hand on to the
        next one hold as much again."""
        self._looks += 1
        suspects = []
        for pid, member in list(members.items()):
            more = others.get(pid, [])
            if (member.number + self._looks) % _FULL_LOOK == 0:
                member.look()
            if len(more) < _MANY:
                member.kernel = 0
            elif (member.number + self._looks) % _KERNEL_LOOK == 0:
                member.kernel = self._kernel_bytes(more)
            held = member.held_bytes() + member.kernel + sum(process.held for process in more)
            if held > self._memory_bytes:
                suspects.append(member)
            else:
                member.doubted = False
        # Those that were not reached last time come first.
        suspects.sort(key=lambda member: (member.number <= self._measured, member.number))
        until = time.monotonic() + _EXACT_SECONDS
        for member in suspects:
            self._measured = member.number
            more = others.get(member.pid, [])
            first = member.look()
            processes = [*more, *([first] if first is not None else [])]
            exact = [measure.exact_bytes(process) for process in processes]
            held = member.printed_bytes() + member.kernel
            for process, size in zip(processes, exact, strict=True):
                held += process.held if size is None else size
            certain = None not in exact or member.doubted
            member.doubted = held > self._memory_bytes
            if member.doubted and certain:
                event = {"event": "over_memory", "id": member.number, "held": held}
                yield Excess(member, event, [member.pid, *(process.pid for process in more)])
            if time.monotonic() > until:
                return

    def _kernel_bytes(self, processes: list[measure.Process]) -> int:
        seen: set[str] = set()
        return sum(measure.kernel_bytes(one, self._open_files, seen) for one in processes)

    def over_locks(self, members: Mapping[int, Member], others: Others) -> Iterator[Excess]:
        self._lock_looks += 1
        if self._lock_looks % _LOCKS_LOOK:
            return
        held = Counter(measure.locks())
        if sum(held.values()) <= _LOCKS:
            return
        for pid, member in list(members.items()):
            processes = [pid, *(process.pid for process in others.get(pid, []))]
            if sum(held[process] for process in processes) > _LOCKS:
                reason = f"its processes held more than {_LOCKS} locks on files"
                event = {"event": "over_limit", "id": member.number, "reason": reason}
                yield Excess(member, event, processes)

    def over_share(
        self, members: Mapping[int, Member], others: Others
    ) -> Iterator[tuple[list[measure.Process], int]]:
        """The processes of each session that computes on more threads than one may, and how many
        those are."""
        for pid, member in members.items():
            more = others.get(pid, [])
            if len(more) + member.threads <= share.THREADS and all(
                process.threads == 1 for process in more
            ):
                continue
            first = member.look()
            processes = [*([first] if first is not None else []), *more]
            running = sum(len(measure.running_threads(process)) for process in processes)
            if running > share.THREADS:
                yield processes, running

    def over_disk(self, members: Mapping[int, Member]) -> Iterator[Excess]:
        """Without a jail no files are watched: there the code can write anywhere."""
        if self._own_file_systems:
            sizes = [measure.file_system_bytes(member.folder) for member in members.values()]
            if sum(sizes) > _MEMORY_BYTES // _MEMORY_SHARE:
                fullest = max(zip(sizes, members, strict=True))[1]
                yield self._too_full(members[fullest], together=sum(sizes))
        elif self._jailed and measure.file_system_bytes(self._root) > self._disk_bytes:
            # Alone in its jail: whatever is in the file system is its own.
            yield from (self._too_full(member) for member in list(members.values()))

    def _too_full(self, member: Member, *, together: int = 0) -> Excess:
        event = {"event": "over_disk", "id": member.number, "together": together}
        return Excess(member, event, [])


def _first_of(
    process: measure.Process,
    found: Mapping[int, measure.Process],
    members: Mapping[int, Member],
) -> int | None:
    """The first process of the session that it belongs to. None if it has ended meanwhile."""
    for _ in range(_STEPS):
        if process.parent in members:
            return process.parent
        if process.parent == 0:  # The first of this pid namespace.
            return None
        above = found.get(process.parent) or measure.look_at(process.parent)
        if above is None:
            # Its parent ended between two looks, so it has another one now.
            above = measure.look_at(process.pid)
        if above is None:
            return None
        process = above
    return None
