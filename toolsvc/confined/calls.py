"""The system calls that a job's process keeps: to compute, to hold memory, to read and write the
files that it was handed, to end. There is none among them that takes a path, a process or an
address, or that makes a descriptor.

Left out on purpose: `newfstatat`, by which newer C libraries look at open files, takes a path too
(Python lives without its answer); `kill` and `tgkill`, so that nothing in here dies by SIGKILL of
its own doing; `ioctl`, `fcntl`, `ftruncate`; `clone`, so that there is one thread.
"""

from __future__ import annotations

from toolsvc.sandbox.jailed.walls import bpf, syscalls

_KEPT = {
    syscalls.X86_64: {
        "read": 0,
        "write": 1,
        "close": 3,
        "fstat": 5,
        "lseek": 8,
        "mmap": 9,
        "mprotect": 10,
        "munmap": 11,
        "brk": 12,
        "rt_sigaction": 13,
        "rt_sigprocmask": 14,
        "rt_sigreturn": 15,
        "pread64": 17,
        "readv": 19,
        "writev": 20,
        "sched_yield": 24,
        "mremap": 25,
        "madvise": 28,
        "getpid": 39,
        "exit": 60,
        "gettid": 186,
        "futex": 202,
        "clock_gettime": 228,
        "exit_group": 231,
        "getrandom": 318,
    },
    syscalls.AARCH64: {
        "close": 57,
        "lseek": 62,
        "read": 63,
        "write": 64,
        "readv": 65,
        "writev": 66,
        "pread64": 67,
        "fstat": 80,
        "exit": 93,
        "exit_group": 94,
        "futex": 98,
        "clock_gettime": 113,
        "sched_yield": 124,
        "rt_sigaction": 134,
        "rt_sigprocmask": 135,
        "rt_sigreturn": 139,
        "getpid": 172,
        "gettid": 178,
        "brk": 214,
        "munmap": 215,
        "mremap": 216,
        "mmap": 222,
        "mprotect": 226,
        "madvise": 233,
        "getrandom": 278,
    },
}


def program(machine: str) -> bytes:
    """The filter. ValueError for a machine without a table."""
    return bpf.only(machine, tuple(_KEPT.get(machine, {}).values()))
