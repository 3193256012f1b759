"""The few system calls that Python 3.9 to 3.12 does not wrap, by ctypes.

Owns their numbers and layouts. It knows nothing of sessions: `confine` decides what is called
in which order. Every function raises OSError where the kernel refuses.

By hand rather than by a library: the PyPI `landlock` is an alpha release, and the jail's
interpreter sees no installed packages.
"""

from __future__ import annotations

import ctypes
import os
import signal
import struct
from collections.abc import Mapping

_libc = ctypes.CDLL(None, use_errno=True)
# Keeps the interpreter lock over the call: `clone` returns twice and only one side could
# otherwise take the lock back.
_locked = ctypes.PyDLL(None, use_errno=True)
# Named here, for good: a function that a child were the first to ask for it would have to find
# anew, in each child.
_prctl, _syscall, _locked_syscall = _libc.prctl, _libc.syscall, _locked.syscall
_before_fork, _after_fork_parent, _after_fork_child = (
    _locked.PyOS_BeforeFork,
    _locked.PyOS_AfterFork_Parent,
    _locked.PyOS_AfterFork_Child,
)

MACHINE = os.uname().machine
_CLONE = {"x86_64": 56, "aarch64": 220}
_CAPSET = {"x86_64": 126, "aarch64": 91}

_CLONE_NEWNS = 0x00020000
_CLONE_NEWUSER = 0x10000000
_CLONE_NEWPID = 0x20000000
OWN_NAMESPACES = _CLONE_NEWUSER | _CLONE_NEWPID | _CLONE_NEWNS
"""What a session in a shared jail has of its own."""
CLONE_PARENT = 0x00008000
"""The new process is a child of this one's parent."""
_CLONE_CHILD_CLEARTID = 0x00200000
_CLONE_CHILD_SETTID = 0x01000000

_PR_SET_DUMPABLE = 4
_PR_GET_SECCOMP = 21
_PR_SET_SECCOMP = 22
_PR_CAPBSET_DROP = 24
_PR_SET_SECUREBITS = 28
_PR_SET_CHILD_SUBREAPER = 36
_PR_SET_NO_NEW_PRIVS = 38
_PR_GET_NO_NEW_PRIVS = 39
_PR_GET_TID_ADDRESS = 40
_SECCOMP_MODE_FILTER = 2
_SECUREBITS_NO_ROOT_LOCKED = 0b11101111
_CAPABILITY_VERSION_3 = 0x20080522

_MOVE_MOUNT, _FSOPEN, _FSCONFIG, _FSMOUNT, _MOUNT_SETATTR = 429, 430, 431, 432, 442
_SET_STRING, _CREATE = 1, 6
_FROM_DESCRIPTOR = 4
_MOUNT_ATTR_RDONLY, _MOUNT_ATTR_NOSUID, _MOUNT_ATTR_NODEV = 1, 2, 4
_MS_PRIVATE = 1 << 18
_AT_FDCWD = -100
_AT_RECURSIVE = 0x8000
_CAP_SYS_ADMIN = 1 << 21

_LANDLOCK_CREATE, _LANDLOCK_ADD, _LANDLOCK_RESTRICT = 444, 445, 446
_LANDLOCK_RULE_PATH_BENEATH = 1

FS_EXECUTE = 1 << 0
FS_WRITE_FILE = 1 << 1
FS_READ_FILE = 1 << 2
FS_READ_DIR = 1 << 3
_FS_MAKE_CHAR = 1 << 6
_FS_MAKE_SOCK = 1 << 9
_FS_MAKE_BLOCK = 1 << 11
_FS_REFER = 1 << 13
_FS_TRUNCATE = 1 << 14
_FS_IOCTL_DEV = 1 << 15
_FS_ABI_1 = (1 << 13) - 1
_NET_ALL = 0b11
_SCOPE_ALL = 0b11


def _check(result: int, what: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result


def prctl(option: int, argument: int = 0) -> int:
    return _check(
        _prctl(option, ctypes.c_ulong(argument), ctypes.c_ulong(0), 0, 0), f"prctl {option}"
    )


class Clone:
    """`os.fork` with flags: called, it returns 0 in the child and the child's pid in the parent.

    One fork where `unshare` would need two (a new pid namespace is entered only by children),
    which is a third of the cost of a session's process. The interpreter's own fork hooks run;
    the C library's do not, so the caller must be single-threaded.
    """

    def __init__(self, flags: int) -> None:
        address = ctypes.c_void_p()
        tid = 0
        if _prctl(_PR_GET_TID_ADDRESS, ctypes.byref(address), 0, 0, 0) == 0:
            # As the C library's own fork does, so that the child's thread knows its new number.
            tid = address.value or 0
            flags |= _CLONE_CHILD_SETTID | _CLONE_CHILD_CLEARTID if tid else 0
        order = (0, 0, tid, 0) if MACHINE == "x86_64" else (0, 0, 0, tid)
        self._arguments = [
            ctypes.c_long(value) for value in (_CLONE[MACHINE], flags | signal.SIGCHLD, *order)
        ]

    def __call__(self) -> int:
        _before_fork()
        pid = int(_locked_syscall(*self._arguments))
        if pid == 0:
            _after_fork_child()
            return 0
        number = ctypes.get_errno()
        _after_fork_parent()
        if pid < 0:
            raise OSError(number, f"clone with new namespaces: {os.strerror(number)}")
        return pid


def landlock_abi() -> int:
    """Version of the kernel's Landlock interface; 0 where it has none or has it switched off."""
    return max(0, int(_syscall(_LANDLOCK_CREATE, None, ctypes.c_size_t(0), 1)))


def landlock_rights(abi: int) -> int:
    """Every file-system right that this interface version can deny."""
    rights = _FS_ABI_1
    if abi >= 2:
        rights |= _FS_REFER
    if abi >= 3:
        rights |= _FS_TRUNCATE
    if abi >= 5:
        rights |= _FS_IOCTL_DEV
    return rights


def own_folder_rights(abi: int) -> int:
    """All but device nodes and sockets."""
    return landlock_rights(abi) & ~(_FS_MAKE_CHAR | _FS_MAKE_BLOCK | _FS_MAKE_SOCK)


def landlock_restrict(abi: int, allowed: list[tuple[int, int]]) -> None:
    """Denies this process every path but those beneath `allowed` (descriptor, rights), all TCP
    (ABI 4 on), and signals and abstract sockets across the sandbox's edge (ABI 6 on)."""
    rights = landlock_rights(abi)
    attributes = struct.pack(
        "=QQQ", rights, _NET_ALL if abi >= 4 else 0, _SCOPE_ALL if abi >= 6 else 0
    )
    size = 24 if abi >= 6 else 16 if abi >= 4 else 8
    ruleset = _check(
        _syscall(_LANDLOCK_CREATE, attributes, ctypes.c_size_t(size), 0), "landlock ruleset"
    )
    for descriptor, granted in allowed:
        rule = struct.pack("=Qi", granted & rights, descriptor)
        _check(
            _syscall(_LANDLOCK_ADD, ruleset, _LANDLOCK_RULE_PATH_BENEATH, rule, 0),
            "landlock rule",
        )
    _check(_syscall(_LANDLOCK_RESTRICT, ruleset, 0), "landlock")
    os.close(ruleset)


def in_a_jail() -> bool:
    """Whether this process has lost its privileges and system calls."""
    unprivileged = int(_prctl(_PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0))
    return unprivileged == 1 and int(_prctl(_PR_GET_SECCOMP, 0, 0, 0, 0)) == _SECCOMP_MODE_FILTER


def no_new_privileges() -> None:
    prctl(_PR_SET_NO_NEW_PRIVS, 1)


def adopt_orphans() -> None:
    """Every process below this one stays below it, whichever of its parents ends."""
    prctl(_PR_SET_CHILD_SUBREAPER, 1)


def dumpable() -> None:
    """Takes `not_dumpable`, which children inherit, back."""
    prctl(_PR_SET_DUMPABLE, 1)


def not_dumpable() -> None:
    """Nobody of the same user may trace this process or read its memory."""
    prctl(_PR_SET_DUMPABLE, 0)


def drop_capabilities(*, in_own_namespace: bool, keep: int = 0) -> None:
    """Leaves no capability but those of the bits `keep`, and no way for user id 0 to regain one by
    exec."""
    if in_own_namespace:
        # Both need CAP_SETPCAP, which only the maker of a user namespace holds here.
        prctl(_PR_SET_SECUREBITS, _SECUREBITS_NO_ROOT_LOCKED)
        capability = 0
        while _prctl(_PR_CAPBSET_DROP, ctypes.c_ulong(capability), 0, 0, 0) == 0:
            capability += 1
    header = struct.pack("=II", _CAPABILITY_VERSION_3, 0)
    data = struct.pack("=6I", keep, keep, 0, 0, 0, 0)
    _check(_syscall(_CAPSET[MACHINE], header, data), "capset")


class SeccompProgram:
    """A filter kept in memory that forked children share, ready to be installed."""

    def __init__(self, program: bytes) -> None:
        self._code = ctypes.create_string_buffer(program, len(program))
        header = struct.pack("@HxxxxxxQ", len(program) // 8, ctypes.addressof(self._code))
        self._header = ctypes.create_string_buffer(header, len(header))

    def install(self) -> None:
        """Irrevocable. Needs `no_new_privileges` before it."""
        _check(
            _prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, self._header, 0, 0),
            "seccomp filter",
        )


def own_mounts() -> None:
    """Enters a user and a mount namespace in which this process may mount, and do nothing else
    that it could not before."""
    uid, gid = os.geteuid(), os.getegid()
    _check(_libc.unshare(_CLONE_NEWUSER | _CLONE_NEWNS), "unshare")
    for name, text in (
        ("setgroups", "deny"),
        ("uid_map", f"{uid} {uid} 1"),
        ("gid_map", f"{gid} {gid} 1"),
    ):
        descriptor = os.open(f"/proc/self/{name}", os.O_WRONLY)
        try:
            os.write(descriptor, text.encode())
        finally:
            os.close(descriptor)
    drop_capabilities(in_own_namespace=True, keep=_CAP_SYS_ADMIN)


def make_all_mounts_read_only() -> None:
    """All that this mount namespace shows, for good: sessions inherit it and can take nothing back.
    What is mounted elsewhere from now on does not appear here."""
    attributes = struct.pack("=QQQQ", _MOUNT_ATTR_RDONLY, 0, _MS_PRIVATE, 0)
    _check(
        _syscall(_MOUNT_SETATTR, _AT_FDCWD, b"/", _AT_RECURSIVE, attributes, ctypes.c_size_t(32)),
        "mount_setattr",
    )


def new_file_system(options: Mapping[bytes, bytes]) -> int:
    """Descriptor of the root of an empty tmpfs that is mounted nowhere. It lives for as long as it
    is held open or mounted."""
    context = _check(_syscall(_FSOPEN, b"tmpfs", 1), "fsopen")
    try:
        for name, value in options.items():
            _check(_syscall(_FSCONFIG, context, _SET_STRING, name, value, 0), "fsconfig")
        _check(_syscall(_FSCONFIG, context, _CREATE, None, None, 0), "fsconfig")
        flags = _MOUNT_ATTR_NOSUID | _MOUNT_ATTR_NODEV
        return _check(_syscall(_FSMOUNT, context, 1, flags), "fsmount")
    finally:
        os.close(context)


def mount_at(file_system: int, path: bytes) -> None:
    """Mounts what `new_file_system` made, in this process's mount namespace alone."""
    _check(
        _syscall(_MOVE_MOUNT, file_system, b"", _AT_FDCWD, path, _FROM_DESCRIPTOR),
        "move_mount",
    )
