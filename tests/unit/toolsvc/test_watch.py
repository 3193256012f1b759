"""Whose processes are whose, what they hold, and how much of the processors they may claim."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from toolsvc.sandbox.jailed.watching import measure, share
from toolsvc.sandbox.jailed.watching.watch import (
    _FULL_LOOK,
    _KERNEL_LOOK,
    _LOCKS_LOOK,
    Member,
    SessionWatch,
)

MIB = 1 << 20
SETTINGS = {
    "confinement": {"namespaces": True, "limits": {"open_files": 64}},
    "jailed": True,
    "memory_bytes": 64 * MIB,
    "disk_bytes": MIB,
}
SPREADS = """
import ctypes, time
libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
for at in range(1, 9000):  # a page in each GiB, which takes two tables
    place = ctypes.c_void_p(at << 30)
    if libc.mmap(place, ctypes.c_size_t(4096), 1, 0x100022, -1, ctypes.c_long(0)) == at << 30:
        ctypes.string_at(place, 1)
print(flush=True)
time.sleep(60)
"""
HIDES = """
import ctypes, os, sys, time
ctypes.CDLL(None).prctl(4, 0, 0, 0, 0)
if os.fork() == 0:
    block = bytearray({mib} << 20)
    print(flush=True)
    {then}
time.sleep(60)
"""


MAPS = """
import mmap, time
kept = []
for at in range({count}):
    kept.append(mmap.mmap(-1, 4096, prot=mmap.PROT_READ * (at % 2)))
print(flush=True)
time.sleep(60)
"""
FORKS = """
import fcntl, os, socket, tempfile, time
common = [socket.socketpair() for _ in range({common})]
for _ in range({processes}):
    if os.fork() == 0:
        pairs = [socket.socketpair() for _ in range({pairs})]
        with tempfile.TemporaryFile() as file:
            for at in range({locks}):
                fcntl.lockf(file, fcntl.LOCK_EX, 1, 2 * at)
            print(flush=True)
            time.sleep(60)
time.sleep(60)
"""


@pytest.fixture
def watch() -> SessionWatch:
    return SessionWatch(-1, SETTINGS, own_file_systems=True)


@contextlib.contextmanager
def session(code: str, lines: int = 1) -> Iterator[Member]:
    """A first process, once what it runs has printed so many lines."""
    process = subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", code], stdout=subprocess.PIPE, start_new_session=True
    )
    assert process.stdout is not None
    for _ in range(lines):
        process.stdout.readline()
    member = Member(process.pid, 1, -1, os.memfd_create("output"))
    try:
        yield member
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        process.stdout.close()
        member.forget()


def test_a_child_that_hides_is_its_parents(watch: SessionWatch) -> None:
    with session(HIDES.format(mib=80, then="time.sleep(60)")) as member:
        others = watch.others({member.pid: member}, set())
        (child,) = others[member.pid]
        assert child.parent == member.pid
        assert child.held > 80 * MIB
        (excess,) = watch.over_memory({member.pid: member}, others)
        assert (excess.event["id"], excess.processes) == (1, [member.pid, child.pid])
        assert excess.event["held"] > 80 * MIB


def gone(held: int) -> measure.Process:
    """As it was looked at, before it ended."""
    ended = subprocess.Popen(["/bin/true"])
    ended.wait()
    return measure.Process(ended.pid, 1, False, 1, held, 0, held)


def test_processes_that_end_together_are_looked_at_once_more(watch: SessionWatch) -> None:
    with session("import time; print(flush=True); time.sleep(60)") as member:
        members = {member.pid: member}
        ending = {member.pid: [gone(30 * MIB) for _ in range(9)]}
        assert not list(watch.over_memory(members, ending))
        assert not list(watch.over_memory(members, {}))
        assert not list(watch.over_memory(members, ending)), "the look between found nothing"


def test_processes_that_hand_on_to_each_other_are_held(watch: SessionWatch) -> None:
    with session("import time; print(flush=True); time.sleep(60)") as member:
        members = {member.pid: member}
        assert not list(watch.over_memory(members, {member.pid: [gone(80 * MIB)]}))
        (excess,) = watch.over_memory(members, {member.pid: [gone(80 * MIB)]})
        assert excess.event["held"] > 80 * MIB


def test_tables_of_a_first_process_are_seen_after_some_looks(watch: SessionWatch) -> None:
    with session(SPREADS) as member:
        looks = [
            bool(list(watch.over_memory({member.pid: member}, {}))) for _ in range(_FULL_LOOK + 1)
        ]
        assert any(looks)


def test_what_is_printed_after_a_call_is_held(watch: SessionWatch) -> None:
    with session("import time; print(flush=True); time.sleep(60)") as member:
        before = member.held_bytes()
        os.posix_fallocate(member._output, 0, 65 * MIB)
        assert 65 * MIB <= member.held_bytes() - before < 66 * MIB  # it may still touch pages
        assert list(watch.over_memory({member.pid: member}, {}))


@pytest.mark.parametrize(
    "starts",
    ["if os.fork() == 0: break", "threading.Thread(target=spin, daemon=True).start()"],
    ids=["processes", "threads"],
)
def test_all_of_a_session_gives_way(watch: SessionWatch, starts: str) -> None:
    spins = (
        "import hashlib, os, threading\n"
        "def spin():\n    while True: hashlib.sha256(bytes(1 << 20))\n"
        f"for _ in range(4):\n    {starts}\nelse: print(flush=True)\nspin()"
    )
    with session(spins) as member:
        members = {member.pid: member}
        member.look()
        found = []
        while not found:  # a thread may not have begun when it is looked at
            found = list(watch.over_share(members, watch.others(members, set())))
        ((processes, running),) = found
        assert running > share.THREADS
        share.lower(processes, share.niceness(running))
        threads = [thread for one in processes for thread in measure.threads(one.pid)]
        assert len(threads) == 5
        nice = {os.getpriority(os.PRIO_PROCESS, thread) for thread in threads}
        assert nice == {share.niceness(running)}


def test_who_computes_on_two_threads_is_left_alone(watch: SessionWatch) -> None:
    with session("import os\nos.fork()\nprint(flush=True)\nwhile True: pass") as member:
        members = {member.pid: member}
        assert not list(watch.over_share(members, watch.others(members, set())))


def test_what_waits_in_sockets_is_held_where_processes_are_many(watch: SessionWatch) -> None:
    code = FORKS.format(common=0, processes=6, pairs=30, locks=0)
    with session(code, lines=6) as member:
        members = {member.pid: member}
        others = watch.others(members, set())
        looks = [list(watch.over_memory(members, others)) for _ in range(_KERNEL_LOOK)]
        excess = looks[-1][0]
        assert excess.event["held"] > 6 * 60 * 256 * 1024
        assert member.kernel > 6 * 60 * 256 * 1024


def test_sockets_that_several_hold_are_counted_once(watch: SessionWatch) -> None:
    code = FORKS.format(common=30, processes=6, pairs=0, locks=0)
    with session(code, lines=6) as member:
        members = {member.pid: member}
        (more,) = watch.others(members, set()).values()
        assert 15 * MIB <= watch._kernel_bytes(more) < 20 * MIB


@pytest.mark.parametrize("count", [10, 3000])
def test_mappings_are_counted_where_they_are_few_and_else_bounded(count: int) -> None:
    with session(MAPS.format(count=count)) as member:
        process = member.look()
        assert process is not None
        held = measure.kernel_bytes(process, 64, set())
        most = min(process.mapped // 4096, 65530) * 256
        assert count * 256 <= held <= most + MIB
        assert (held < most // 4) == (count == 10)


def test_who_holds_many_locks_is_found(watch: SessionWatch) -> None:
    code = FORKS.format(common=0, processes=2, pairs=0, locks=1200)
    few = FORKS.format(common=0, processes=1, pairs=0, locks=900)
    with session(code, lines=2) as many, session(few) as other:
        members = {many.pid: many, other.pid: other}
        others = watch.others(members, set())
        looks = [list(watch.over_locks(members, others)) for _ in range(_LOCKS_LOOK)]
        (excess,) = looks[-1]
        assert excess.member is many
        assert "locks" in excess.event["reason"]
