"""The seccomp program of a session, as bytes; pure, so that a test can run it instruction by
instruction.

Invariants
- The first thing the program reads is the architecture: a call through another ABI kills.
- No new namespace can be made, entered or mounted. No socket can be opened but a connected pair of
  stream or packet sockets; a datagram pair could still send to an address.
- No process leaves its jail's scheduling group, so `setsid` is denied.
- Memory that no per-process figure shows (memfd, System V, POSIX queues, extended attributes,
  Landlock's rules) cannot be allocated.
- Calls that change state shared by all sessions of an account are denied: room of pipes, leases,
  folder watches, extended attributes.
- Nothing reaches the machine's disks: a call that writes files back, or drops them from memory,
  succeeds at once and does nothing. A session can only write to memory.
- Every lock on a file belongs to a process, by whose number the watch counts it: no locks of open
  files, and no table of open files that two processes share.
- A call that is newer than these tables answers ENOSYS, as it does on an older kernel.
- `clone3` answers ENOSYS, not EPERM: its flags cannot be seen from here and the C library falls
  back to `clone`, whose flags can.

Only the machines of `syscalls` have tables; any other is refused by the caller.
"""

from __future__ import annotations

import errno
import struct
from collections.abc import Sequence

from .syscalls import AARCH64, NEWER, NUMBERS, X86_64

_AUDIT = {X86_64: 0xC000003E, AARCH64: 0xC00000B7}
_X32_BIT = 0x40000000

_LANDLOCK = ("landlock_create_ruleset", "landlock_add_rule", "landlock_restrict_self")
_MAKES_SESSIONS = (
    *("clone", "memfd_create", "unshare"),
    *("fsopen", "fsconfig", "fsmount", "move_mount", "mount_setattr"),
    *_LANDLOCK,
)
"""What the zygote does and its sessions may not."""

# Probed for by libraries, which know how to live without them.
_ABSENT = ("clone3", "io_uring_setup", "io_uring_enter", "io_uring_register", *_LANDLOCK)

# They take memory of the kernel's that nothing counts, and stay on what sessions have in common;
# this is what file systems say that have none, which programs that copy them are ready for.
_NOT_SUPPORTED = ("setxattr", "lsetxattr", "fsetxattr", "setxattrat")

_WRITE_BACK = ("sync", "syncfs", "fsync", "fdatasync", "sync_file_range", "fadvise64")

# CLONE_NEWNS | NEWCGROUP | NEWUTS | NEWIPC | NEWUSER | NEWPID | NEWNET
_NEW_NAMESPACES = 0x00020000 | 0x7E000000

_LD, _JA, _JEQ, _JGE, _JSET, _AND, _RET = 0x20, 0x05, 0x15, 0x35, 0x45, 0x54, 0x06
_OFFSET_NUMBER, _OFFSET_ARCH, _OFFSET_ARG0, _OFFSET_ARG1, _OFFSET_ARG2 = 0, 4, 16, 24, 32
_KILL_PROCESS, _ERRNO, _ALLOW = 0x80000000, 0x00050000, 0x7FFF0000
_CLONE_FILES, _CLONE_THREAD = 0x400, 0x10000
_F_OFD_SETLK, _F_OFD_SETLKW, _F_SETLEASE, _F_NOTIFY, _F_SETPIPE_SZ = 37, 38, 1024, 1026, 1031
_SO_SNDBUF, _SO_RCVBUF, _SO_ATTACH_FILTER, _SO_SNDBUFFORCE, _SO_RCVBUFFORCE = 7, 8, 26, 32, 33
_SO_ATTACH_BPF, _SO_ATTACH_REUSEPORT_CBPF, _SO_ATTACH_REUSEPORT_EBPF = 50, 51, 52
_SO_PASSPIDFD, _SO_PEERPIDFD = 76, 77
_PR_SCHED_CORE, _PR_SET_MEMORY_MERGE = 62, 67
_MADV_MERGEABLE = 12
_AF_UNIX, _SOCK_STREAM, _SOCK_SEQPACKET, _SOCK_TYPE_MASK = 1, 1, 5, 0xF


def _op(code: int, k: int, jt: int = 0, jf: int = 0) -> bytes:
    return struct.pack("=HBBI", code, jt, jf, k)


def _return(action: int) -> list[bytes]:
    return [_op(_RET, action)]


_REFUSE = _return(_ERRNO | errno.EPERM)
_NOT_THERE = _return(_ERRNO | errno.ENOSYS)
_WITHOUT = _return(_ERRNO | errno.EOPNOTSUPP)
_DONE = _return(_ERRNO)
_UNKNOWN = _return(_ERRNO | errno.EINVAL)
_PERMIT = _return(_ALLOW)
_KILL = _return(_KILL_PROCESS)

_LOOK_AT_CLONE = [
    _op(_LD, _OFFSET_ARG0),
    _op(_JSET, _NEW_NAMESPACES, 2, 0),
    _op(_JSET, _CLONE_FILES, 0, 2),
    _op(_JSET, _CLONE_THREAD, 1, 0),
    *_REFUSE,
    *_PERMIT,
]


def _look_for(offset: int, values: Sequence[int], answer: list[bytes]) -> list[bytes]:
    """`answer` where the argument is one of `values`."""
    last = len(values) - 1
    return [
        _op(_LD, offset),
        *(_op(_JEQ, value, last - at, at == last) for at, value in enumerate(values)),
        *answer,
        *_PERMIT,
    ]


_LOOK_AT_FCNTL = _look_for(
    _OFFSET_ARG1, (_F_OFD_SETLK, _F_OFD_SETLKW, _F_SETLEASE, _F_NOTIFY, _F_SETPIPE_SZ), _REFUSE
)
# Memory of the kernel's for buffers and filters. A filter is compiled, and what all of the
# machine's compiled filters may take together is what a new session's own needs too.
_LOOK_AT_SETSOCKOPT = _look_for(
    _OFFSET_ARG2,
    (
        *(_SO_SNDBUF, _SO_RCVBUF, _SO_SNDBUFFORCE, _SO_RCVBUFFORCE, _SO_ATTACH_FILTER),
        *(_SO_ATTACH_BPF, _SO_ATTACH_REUSEPORT_CBPF, _SO_ATTACH_REUSEPORT_EBPF, _SO_PASSPIDFD),
    ),
    _REFUSE,
)
# A handle of the zygote's process, or, by the option above, of the service's.
_LOOK_AT_GETSOCKOPT = _look_for(_OFFSET_ARG2, (_SO_PEERPIDFD,), _REFUSE)
# One keeps all others off the other half of a core; the other looks for pages that other processes
# hold too, which tells what those hold.
_LOOK_AT_PRCTL = _look_for(_OFFSET_ARG0, (_PR_SCHED_CORE, _PR_SET_MEMORY_MERGE), _UNKNOWN)
_LOOK_AT_MADVISE = _look_for(_OFFSET_ARG2, (_MADV_MERGEABLE,), _UNKNOWN)
_LOOK_AT_SOCKETPAIR = [
    _op(_LD, _OFFSET_ARG0),
    _op(_JEQ, _AF_UNIX, 0, 4),
    _op(_LD, _OFFSET_ARG1),
    _op(_AND, _SOCK_TYPE_MASK),
    _op(_JEQ, _SOCK_STREAM, 2, 0),
    _op(_JEQ, _SOCK_SEQPACKET, 1, 0),
    *_REFUSE,
    *_PERMIT,
]


def session_program(machine: str) -> bytes:
    """The filter for one session. Raises ValueError for a machine without a table."""
    return _program(machine, spared=())


def zygote_program(machine: str) -> bytes:
    """The filter for a whole jail, where the jail's builder brings none of its own."""
    return _program(machine, spared=_MAKES_SESSIONS)


def only(machine: str, numbers: Sequence[int]) -> bytes:
    """The filter for a process that may make these system calls and no others. ValueError as
    above."""
    ranges: list[tuple[int, list[bytes]]] = [(0, _REFUSE)]
    for number in sorted(numbers):
        if ranges[-1][0] == number:
            ranges.pop()
        ranges += [(number, _PERMIT), (number + 1, _REFUSE)]
    return _finished(machine, ranges)


def _program(machine: str, *, spared: Sequence[str]) -> bytes:
    _check(machine)
    special = {
        "clone": _LOOK_AT_CLONE,
        "fcntl": _LOOK_AT_FCNTL,
        "prctl": _LOOK_AT_PRCTL,
        "setsockopt": _LOOK_AT_SETSOCKOPT,
        "getsockopt": _LOOK_AT_GETSOCKOPT,
        "madvise": _LOOK_AT_MADVISE,
        "socketpair": _LOOK_AT_SOCKETPAIR,
        **dict.fromkeys(_WRITE_BACK, _DONE),
        **dict.fromkeys(_ABSENT, _NOT_THERE),
        **dict.fromkeys(_NOT_SUPPORTED, _WITHOUT),
    }
    # Half-open ranges of numbers with one answer, each named by its start.
    ranges: list[tuple[int, list[bytes]]] = [(0, _PERMIT)]
    for name, number in sorted(NUMBERS[machine].items(), key=lambda item: item[1]):
        if name in spared:
            continue
        if ranges[-1][0] == number:
            ranges.pop()
        ranges += [(number, special.get(name, _REFUSE)), (number + 1, _PERMIT)]
    ranges.append((NEWER, _NOT_THERE))
    if machine == X86_64:
        ranges.append((_X32_BIT, _KILL))
    return _finished(machine, ranges)


def _check(machine: str) -> None:
    if machine not in NUMBERS:
        raise ValueError(
            f"no system call table for {machine!r}; there is one for {X86_64}, {AARCH64}"
        )


def _finished(machine: str, ranges: list[tuple[int, list[bytes]]]) -> bytes:
    """Behind a look at the architecture; neighbours of one answer are one range."""
    _check(machine)
    merged = [ranges[0]]
    for start, answer in ranges[1:]:
        if answer is not merged[-1][1]:
            merged.append((start, answer))
    return b"".join(
        (
            _op(_LD, _OFFSET_ARCH),
            _op(_JEQ, _AUDIT[machine], 1, 0),
            *_KILL,
            _op(_LD, _OFFSET_NUMBER),
            *_search(merged),
        )
    )


def _search(ranges: list[tuple[int, list[bytes]]]) -> list[bytes]:
    """A balanced search for the range that holds the number: the kernel runs the program once
    for every system call when it is installed, so a chain of comparisons would cost each new
    session 0.1 ms."""
    if len(ranges) == 1:
        return ranges[0][1]
    middle = len(ranges) // 2
    below, above = _search(ranges[:middle]), _search(ranges[middle:])
    if len(below) > 255:
        # A conditional jump reaches 255 instructions; an unconditional one any number.
        return [_op(_JGE, ranges[middle][0], 0, 1), _op(_JA, len(below)), *below, *above]
    return [_op(_JGE, ranges[middle][0], len(below), 0), *below, *above]
