"""The seccomp program, run instruction by instruction."""

import errno
import fcntl
import mmap
import socket
import struct

import pytest

from toolsvc.confined import calls
from toolsvc.sandbox.jailed.walls import bpf, syscalls

ALLOW = 0x7FFF0000
KILL = 0x80000000
EPERM = 0x00050000 | errno.EPERM
ENOSYS = 0x00050000 | errno.ENOSYS
EOPNOTSUPP = 0x00050000 | errno.EOPNOTSUPP
EINVAL = 0x00050000 | errno.EINVAL
DONE = 0x00050000
WRITE_BACK = ("sync", "syncfs", "fsync", "fdatasync", "sync_file_range", "fadvise64")
LOOKED_INTO = {
    *("clone", "fcntl", "getsockopt", "madvise", "prctl", "setsockopt", "socketpair"),
    *WRITE_BACK,
}
ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
HARMLESS = {
    "x86_64": {"read": 0, "write": 1, "mmap": 9, "fork": 57, "execve": 59, "getpid": 39},
    "aarch64": {"read": 63, "write": 64, "mmap": 222, "execve": 221, "getpid": 172},
}
CLONE_THREAD = 0x003D0F00


def run(program: bytes, machine: str, number: int, *arguments: int) -> int:
    """What the kernel's interpreter would answer."""
    values = list(arguments) + [0] * (6 - len(arguments))
    data = struct.pack("=IIQ6Q", number, ARCHITECTURES.get(machine, 0), 0, *values)
    instructions = list(struct.iter_unpack("=HBBI", program))
    at, accumulator = 0, 0
    for _ in range(len(instructions)):
        code, jt, jf, k = instructions[at]
        at += 1
        if code == 0x20:
            (accumulator,) = struct.unpack_from("=I", data, k)
        elif code == 0x06:
            return k
        elif code == 0x05:
            at += k
        elif code == 0x54:
            accumulator &= k
        else:
            taken = {
                0x15: accumulator == k,
                0x35: accumulator >= k,
                0x45: bool(accumulator & k),
            }[code]
            at += jt if taken else jf
    raise AssertionError("the program did not end")


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_every_listed_call_is_refused_and_its_neighbours_are_not(machine: str) -> None:
    program = bpf.session_program(machine)
    numbers = syscalls.NUMBERS[machine]
    listed = set(numbers.values())
    for name, number in numbers.items():
        if name in LOOKED_INTO:
            continue
        assert run(program, machine, number) in (EPERM, ENOSYS, EOPNOTSUPP), name
    for number in set(range(467)) - listed:
        assert run(program, machine, number) == ALLOW, number


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_calls_that_are_newer_than_the_tables_are_absent(machine: str) -> None:
    program = bpf.session_program(machine)
    assert max(syscalls.NUMBERS[machine].values()) < 467
    for number in (467, 468, 500, 10000, 0x3FFFFFFF):
        assert run(program, machine, number) == ENOSYS, number


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_nothing_is_written_back_and_all_is_told_to_be(machine: str) -> None:
    program = bpf.session_program(machine)
    for name in WRITE_BACK:
        assert run(program, machine, syscalls.NUMBERS[machine][name]) == DONE, name


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_sockets_keep_their_size_have_no_filter_and_hand_out_no_processes(machine: str) -> None:
    program, number = bpf.session_program(machine), syscalls.NUMBERS[machine]["setsockopt"]
    asked = syscalls.NUMBERS[machine]["getsockopt"]
    assert run(program, machine, asked, 4, 1, 77) == EPERM
    for option in (socket.SO_PEERCRED, socket.SO_TYPE, socket.SO_ERROR):
        assert run(program, machine, asked, 4, 1, option) == ALLOW, option
    for option in (7, 8, 26, 32, 33, 50, 51, 52, 76):
        assert run(program, machine, number, 4, 1, option) == EPERM, option
    for option in (socket.SO_PASSCRED, socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
        assert run(program, machine, number, 4, 1, option) == ALLOW, option


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_open_files_are_shared_among_threads_alone(machine: str) -> None:
    program, number = bpf.session_program(machine), syscalls.NUMBERS[machine]["clone"]
    assert run(program, machine, number, 0x400 | 17) == EPERM
    assert run(program, machine, number, 0x4000 | 0x100 | 17) == ALLOW  # vfork
    assert run(program, machine, number, CLONE_THREAD) == ALLOW


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_what_python_lives_on_is_allowed(machine: str) -> None:
    program = bpf.session_program(machine)
    for name, number in HARMLESS[machine].items():
        assert run(program, machine, number) == ALLOW, name
    clone = syscalls.NUMBERS[machine]["clone"]
    assert run(program, machine, clone, CLONE_THREAD) == ALLOW
    pair = syscalls.NUMBERS[machine]["socketpair"]
    assert run(program, machine, pair, 1, 1 | 0o2000000) == ALLOW
    assert run(program, machine, pair, 1, 5) == ALLOW


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
@pytest.mark.parametrize("flag", [1 << 17, 1 << 25, 1 << 26, 1 << 27, 1 << 28, 1 << 29, 1 << 30])
def test_no_namespace_can_be_made_by_clone(machine: str, flag: int) -> None:
    program = bpf.session_program(machine)
    assert run(program, machine, syscalls.NUMBERS[machine]["clone"], flag | 17) == EPERM


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_clone3_is_absent_so_that_the_c_library_falls_back(machine: str) -> None:
    assert run(bpf.session_program(machine), machine, 435) == ENOSYS


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_no_socket_reaches_beyond_a_pair(machine: str) -> None:
    program = bpf.session_program(machine)
    numbers = syscalls.NUMBERS[machine]
    for name in ("socket", "connect", "bind", "listen", "accept", "accept4"):
        assert run(program, machine, numbers[name], 1, 1) == EPERM, name
    assert run(program, machine, numbers["socketpair"], 1, 2) == EPERM
    assert run(program, machine, numbers["socketpair"], 2, 1) == EPERM


def test_another_architecture_or_the_x32_interface_is_killed() -> None:
    program = bpf.session_program("x86_64")
    assert run(program, "aarch64", 0) == KILL
    assert run(program, "i386", 0) == KILL
    assert run(program, "x86_64", 0x40000000 | 41) == KILL
    assert run(bpf.session_program("aarch64"), "x86_64", 63) == KILL


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_a_jail_may_make_sessions_and_nothing_else_more_than_they(machine: str) -> None:
    jail, session = bpf.zygote_program(machine), bpf.session_program(machine)
    numbers = syscalls.NUMBERS[machine]
    more = {
        name
        for name, number in numbers.items()
        if run(jail, machine, number, 1 << 28) != run(session, machine, number, 1 << 28)
    }
    landlock = {"landlock_create_ruleset", "landlock_add_rule", "landlock_restrict_self"}
    assert more == {
        *("clone", "memfd_create", "unshare"),
        *("fsopen", "fsconfig", "fsmount", "move_mount", "mount_setattr"),
        *landlock,
    }


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_what_is_one_for_all_sessions_is_left_alone(machine: str) -> None:
    program, numbers = bpf.session_program(machine), syscalls.NUMBERS[machine]
    for name in ("F_SETLEASE", "F_NOTIFY", "F_SETPIPE_SZ", "F_OFD_SETLK", "F_OFD_SETLKW"):
        command = getattr(fcntl, name)
        assert run(program, machine, numbers["fcntl"], 3, command) == EPERM, name
    for name in ("F_DUPFD", "F_DUPFD_CLOEXEC", "F_GETFL", "F_SETFL", "F_SETLK", "F_GETLEASE"):
        assert run(program, machine, numbers["fcntl"], 3, getattr(fcntl, name)) == ALLOW, name
    for name in ("setxattr", "lsetxattr", "fsetxattr", "setxattrat"):
        assert run(program, machine, numbers[name]) == EOPNOTSUPP, name
    for option in (62, 67):  # PR_SCHED_CORE, PR_SET_MEMORY_MERGE
        assert run(program, machine, numbers["prctl"], option, 1) == EINVAL, option
    assert run(program, machine, numbers["madvise"], 0, 4096, mmap.MADV_MERGEABLE) == EINVAL
    assert run(program, machine, numbers["madvise"], 0, 4096, mmap.MADV_DONTNEED) == ALLOW
    for option in (4, 15, 38):  # PR_SET_DUMPABLE, PR_SET_NAME, PR_SET_NO_NEW_PRIVS
        assert run(program, machine, numbers["prctl"], option, 1) == ALLOW, option


def test_a_machine_without_a_table_is_refused() -> None:
    with pytest.raises(ValueError, match="riscv64"):
        bpf.session_program("riscv64")


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_a_decision_takes_few_steps(machine: str) -> None:
    """The kernel runs the program for every system call when it is installed."""
    program = bpf.session_program(machine)
    assert len(program) % 8 == 0
    assert len(program) // 8 < 400


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_a_parser_keeps_the_calls_that_are_listed_and_no_others(machine: str) -> None:
    program = calls.program(machine)
    kept = {number for number in range(600) if run(program, machine, number) == ALLOW}
    assert kept == set(calls._KEPT[machine].values())
    refused = {name: n for name, n in syscalls.NUMBERS[machine].items() if name not in LOOKED_INTO}
    assert not kept & set(refused.values())
    other = "aarch64" if machine == "x86_64" else "x86_64"
    assert run(program, other, 0) == KILL
    assert run(program, machine, 0x40000000) == EPERM
    assert set(calls._KEPT["x86_64"]) == set(calls._KEPT["aarch64"])


def test_a_machine_that_is_not_known_gets_no_program() -> None:
    with pytest.raises(ValueError, match="riscv64"):
        calls.program("riscv64")
