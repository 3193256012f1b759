"""The system calls that a job's process keeps: to compute, to hold memory, to read and write the
files that it was handed, to end. No call among them takes a path, a process or an address, or makes
a descriptor.

Left out on purpose: `newfstatat`, by which newer C libraries look at open files, takes a path too
(Python lives without its answer); `kill` and `tgkill`, so that nothing in here dies by SIGKILL of
its own doing; `ioctl`, `fcntl`, `ftruncate`; `clone`, so that there is one thread.
"""

from __future__ import annotations

from toolsvc.sandbox.jailed.walls import bpf, syscalls

_KEPT = syscalls.numbers("""
brk 12 214, clock_gettime 228 113, close 3 57, exit 60 93, exit_group 231 94, fstat 5 80
futex 202 98, getpid 39 172, getrandom 318 278, gettid 186 178, lseek 8 62, madvise 28 233
mmap 9 222, mprotect 10 226, mremap 25 216, munmap 11 215, pread64 17 67, read 0 63
readv 19 65, rt_sigaction 13 134, rt_sigprocmask 14 135, rt_sigreturn 15 139
sched_yield 24 124, write 1 64, writev 20 66
""")


def program(machine: str) -> bytes:
    """The filter. Raises ValueError for a machine without a table."""
    return bpf.only(machine, tuple(_KEPT.get(machine, {}).values()))
