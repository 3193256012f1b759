"""The firejail command line of a jail.

firejail hides the listed folders, so the list has every top-level folder that the program does not
need. Landlock in each session of a tool service is the allow-list.
"""

from __future__ import annotations

import contextlib
import os

from toolwright.jail.view import View

_SEEN = {
    *("bin", "dev", "etc", "lib", "lib32", "lib64", "libx32", "proc", "run", "sbin", "tmp", "usr"),
}
_DENIED = ",".join(
    (
        *("@clock", "@cpu-emulation", "@debug", "@module", "@obsolete", "@raw-io", "@reboot"),
        *("@swap", "acct", "add_key", "bpf", "fanotify_init", "io_uring_enter"),
        *("io_uring_register", "io_uring_setup", "keyctl", "name_to_handle_at"),
        *("open_by_handle_at", "request_key", "setdomainname", "sethostname", "syslog"),
        *("userfaultfd", "vhangup", "vmsplice"),
    )
)
"""firejail's default list but for mounting, by which the zygote bounds the jail's files; the
sessions' own filter denies that too."""


def command(firejail: str, view: View, open_files: int | None = None) -> list[str]:
    """Command line before the program that runs in the jail. firejail: its path. open_files: most
    open files of a process; None = as many as the service's."""
    # Left out on purpose: --timeout (its end looks like any other), --deterministic-shutdown (0.1 s
    # a start), --read-only=/ and --restrict-namespaces (both deny the sessions their own user
    # namespace; each session's own filter denies new ones), limits (set for each session). No "--"
    # at the end: firejail would start the program through the account's login shell.
    return [
        firejail,
        "--quiet",
        "--noprofile",
        "--net=none",
        "--protocol=unix,inet,inet6" if view.loopback else "--protocol=unix",
        "--caps.drop=all",
        "--nonewprivs",
        "--noroot",
        "--nogroups",
        f"--seccomp.drop={_DENIED}",
        "--ipc-namespace",
        f"--whitelist={view.own}" if view.own else "--private-tmp",
        "--private-dev",
        "--private-cwd",
        # Programs such as awk, cc and vi are links by way of alternatives.
        f"--private-etc={','.join(('alternatives', 'ld.so.cache', 'localtime', *view.etc))}",
        *(f"--blacklist={path}" for path in hidden_folders(view.folders)),
        # They may belong to the jail's own account.
        *(f"--read-only={path}" for path in view.folders),
        *(() if open_files is None else (f"--rlimit-nofile={open_files}",)),
    ]


def environment() -> dict[str, str]:
    found = {"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8"}
    if _in_container():
        # In a pid namespace firejail believes itself already jailed and runs the program bare, with
        # exit code 0. This variable prevents that; the self-test checks it.
        found["container"] = "docker"
    return found


def hidden_folders(needed: tuple[str, ...]) -> list[str]:
    """Folders that nothing in the jail needs: those of the top level but the system's own, those in
    /run, and those beside the path of a needed folder."""
    ways = {way for folder in needed for way in _ways_to(folder)}
    hidden = []
    for way in ["/", *sorted(ways - set(needed) - {"/"})]:
        with contextlib.suppress(OSError):
            for name in sorted(os.listdir(way)):
                path = os.path.join(way, name)
                real = os.path.realpath(path)
                # firejail would hide what a link leads to, which may be needed (/var/run); if it
                # is not, it is hidden where it is.
                if way != "/" and os.path.islink(path):
                    continue
                seen = real in ways or (way == "/" and name in _SEEN)
                if not seen and not any(real.startswith(f"{folder}/") for folder in needed):
                    hidden.append(path)
    with contextlib.suppress(OSError):
        # /run itself must stay: firejail dies without it.
        hidden += [f"/run/{name}" for name in sorted(os.listdir("/run")) if name != "firejail"]
    return [path for path in hidden if "," not in path and not path.startswith("/.")]


def _ways_to(folder: str) -> list[str]:
    """The folder and all above it but the system's own, which stay whole."""
    ways = []
    while folder != "/" and folder[1:] not in _SEEN:
        ways.append(folder)
        folder = os.path.dirname(folder)
    # Within a folder of the system's own nothing is hidden.
    return ways if folder == "/" else []


def _in_container() -> bool:
    # Lower case: what systemd and the container tools set.
    if "container" in os.environ or os.path.exists("/run/.containerenv"):
        return True
    try:
        with open("/proc/2/comm", encoding="utf-8") as file:
            return file.read().strip() != "kthreadd"
    except OSError:
        return True
