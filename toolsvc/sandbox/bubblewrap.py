"""The bubblewrap command line of a jail.

The jail sees only listed paths: the system's programs and libraries, read-only, and the folders of
the plan. All other folders are empty, and only /tmp is writable.
"""

from __future__ import annotations

import os

from toolsvc.sandbox.jailed.walls import bpf, kernel
from toolsvc.sandbox.plan import JailPlan

_SYSTEM = ("/bin", "/lib", "/lib32", "/lib64", "/libx32", "/sbin")
_FILES = ("/etc/alternatives", "/etc/ld.so.cache", "/etc/localtime")
"""A folder among them: programs such as awk, cc and vi are links by way of it."""
_PAGE_BYTES = 4096


def jail_filter() -> bytes:
    """The seccomp program of the jail: a session's program, plus the calls that the zygote needs to
    make sessions."""
    return bpf.zygote_program(kernel.MACHINE)


def command(plan: JailPlan, filter_file: int, disk_bytes: int) -> list[str]:
    """Command line before the program that runs in the jail. `filter_file`: an inherited descriptor
    that holds the seccomp program. `disk_bytes`: the size of /tmp, which is all that a session
    alone in its jail can write to; shared jails put a file system of their own there."""
    system = ["--ro-bind", "/usr", "/usr"]
    for path in _SYSTEM:
        if os.path.islink(path):
            system += ["--symlink", os.readlink(path), path]
        else:
            system += ["--ro-bind-try", path, path]
    for path in _FILES:
        # The real path, because the jail may not see the target of a link.
        system += ["--ro-bind-try", os.path.realpath(path), path]
    for folder in plan.folders:
        system += ["--ro-bind", folder, folder]
    # Not --disable-userns: the sessions need their own; each session's own filter denies more.
    return [
        plan.program,
        *("--unshare-user", "--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts"),
        "--unshare-cgroup-try",
        "--die-with-parent",
        # The zygote reaps. bubblewrap's own reaper would be a process of the session's user that
        # could be written to by /proc and that the session's filter does not hold.
        "--as-pid-1",
        "--new-session",
        *("--hostname", "sandbox"),
        *("--cap-drop", "ALL"),
        *("--seccomp", str(filter_file)),
        "--clearenv",
        *("--setenv", "PATH", "/usr/bin:/bin"),
        *("--setenv", "LANG", "C.UTF-8"),
        *system,
        *("--proc", "/proc"),
        *("--dev", "/dev"),
        # No limit counts this memory, so it is one page, read-only.
        *("--size", str(_PAGE_BYTES), "--tmpfs", "/dev/shm", "--remount-ro", "/dev/shm"),
        *("--remount-ro", "/dev"),
        *("--size", str(disk_bytes), "--tmpfs", "/tmp"),
        *("--remount-ro", "/"),
        *("--chdir", "/"),
        "--",
    ]
