"""The bubblewrap command line of a jail.

The jail sees only listed paths: the system's programs and libraries, read-only, and the folders of
the view. All other folders are empty, and only /tmp is writable.
"""

from __future__ import annotations

import os

from toolwright.jail.view import View

_SYSTEM = ("/bin", "/lib", "/lib32", "/lib64", "/libx32", "/sbin")
_FILES = ("/etc/alternatives", "/etc/ld.so.cache", "/etc/localtime")
"""A folder among them: programs such as awk, cc and vi are links by way of it."""
_PAGE_BYTES = 4096


def command(
    bwrap: str, view: View, *, filter_file: int | None = None, disk_bytes: int | None = None
) -> list[str]:
    """Command line before the program that runs in the jail. bwrap: its path. filter_file: an
    inherited descriptor that holds a seccomp program, for a jail whose first process makes
    sessions; None = the jail has one program, and makes no user namespaces. disk_bytes: size of
    /tmp; None = what the machine gives."""
    system = ["--ro-bind", "/usr", "/usr"]
    for path in _SYSTEM:
        if os.path.islink(path):
            system += ["--symlink", os.readlink(path), path]
        else:
            system += ["--ro-bind-try", path, path]
    for path in (*_FILES, *(f"/etc/{name}" for name in view.etc)):
        # The real path, because the jail may not see the target of a link.
        system += ["--ro-bind-try", os.path.realpath(path), path]
    for folder in view.folders:
        system += ["--ro-bind", folder, folder]
    size = () if disk_bytes is None else ("--size", str(disk_bytes))
    return [
        bwrap,
        *("--unshare-user", "--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts"),
        "--unshare-cgroup-try",
        "--die-with-parent",
        # A zygote reaps. bubblewrap's own reaper would be a process of the session's user that
        # could be written to by /proc and that the session's filter does not hold. The sessions
        # need user namespaces; each session's own filter denies more.
        *(
            ("--disable-userns",)
            if filter_file is None
            else ("--as-pid-1", "--seccomp", str(filter_file))
        ),
        "--new-session",
        *("--hostname", "sandbox"),
        *("--cap-drop", "ALL"),
        "--clearenv",
        *("--setenv", "PATH", "/usr/bin:/bin"),
        *("--setenv", "LANG", "C.UTF-8"),
        *system,
        *("--proc", "/proc"),
        *("--dev", "/dev"),
        # No limit counts this memory, so it is one page, read-only.
        *("--size", str(_PAGE_BYTES), "--tmpfs", "/dev/shm", "--remount-ro", "/dev/shm"),
        *("--remount-ro", "/dev"),
        *(*size, "--tmpfs", "/tmp"),
        *(("--bind", view.own, view.own) if view.own else ()),
        *("--remount-ro", "/"),
        *("--chdir", "/"),
        "--",
    ]
