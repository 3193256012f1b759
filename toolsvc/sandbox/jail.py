"""Starts one firejail and hands out the socket to the zygote in it.

Owns the choice of account, interpreter and firejail options, and the jail's end. The jail is
the outer wall around many sessions (or one, see `Isolation.PER_SESSION`): no network, no
capabilities, a private /tmp and /dev, and every top-level folder that Python does not need
taken out of sight.

Invariants
- Nothing is ever started outside a jail: where firejail is missing, this raises.
- The jail never runs as root and gets an environment of ours, not the service's.
- It ends when its control socket closes; firejail outlives its parent otherwise.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import socket
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from toolsvc.sandbox.bundle import BOOTSTRAP, bundle_file
from toolsvc.sandbox.config import SandboxConfig
from toolsvc.sandbox.errors import SandboxUnavailable

_ACCOUNTS = ("toolwright", "games")
"""For a service that runs as root: its own account if somebody made one, else one that exists on
every Linux and owns nothing worth having (firejail refuses `nobody`)."""
_PYTHONS = ("/usr/bin/python3", "/usr/local/bin/python3")
_TOP_LEVEL = {
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
_OPEN_FILES = 8192
_END_SECONDS = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """Who the jail runs as; `name` None = whoever the service is."""

    name: str | None
    gid: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class JailPlan:
    """Everything that the start of a jail needs, found and checked once."""

    firejail: str
    python: str
    account: Account


def plan_jail(config: SandboxConfig) -> JailPlan:
    """SandboxUnavailable where a part is missing."""
    firejail = shutil.which("firejail")
    if firejail is None:
        raise SandboxUnavailable(
            "firejail is not on PATH and foreign code is never run without it: "
            "`apt-get install firejail` as root, then start again"
        )
    return JailPlan(firejail=firejail, python=_find_python(config), account=_find_account(config))


def _find_python(config: SandboxConfig) -> str:
    if config.python is not None:
        if not os.access(config.python, os.X_OK):
            raise SandboxUnavailable(
                f"the sandbox's interpreter {config.python} cannot be executed: "
                "name another with --sandbox-python"
            )
        return config.python
    for path in _PYTHONS:
        if os.access(path, os.X_OK):
            return path
    raise SandboxUnavailable(
        f"the sandbox needs a Python of the system and there is none at {' or '.join(_PYTHONS)}: "
        "`apt-get install python3`, or name one with --sandbox-python that every user can read"
    )


def _find_account(config: SandboxConfig) -> Account:
    if os.geteuid() != 0:
        if config.user is not None and config.user != pwd.getpwuid(os.geteuid()).pw_name:
            raise SandboxUnavailable(
                f"only root can run the sandbox as {config.user}: leave --sandbox-user out"
            )
        return Account(name=None, gid=None)
    wanted = _ACCOUNTS if config.user is None else (config.user,)
    for name in wanted:
        with contextlib.suppress(KeyError):
            entry = pwd.getpwnam(name)
            if entry.pw_uid == 0:
                raise SandboxUnavailable(f"the sandbox must not run as root: --sandbox-user {name}")
            return Account(name=name, gid=entry.pw_gid)
    raise SandboxUnavailable(
        f"the service runs as root and there is no account {' or '.join(wanted)} for the sandbox: "
        "`useradd --system --no-create-home toolwright`, or --sandbox-user NAME"
    )


def _hidden_folders(python: str) -> list[str]:
    """Top-level folders that nothing in the jail needs, and what lies in /run."""
    kept = _TOP_LEVEL | {os.path.realpath(python).split("/")[1]}
    hidden = [f"/{name}" for name in sorted(os.listdir("/")) if name not in kept]
    with contextlib.suppress(OSError):
        # /run itself must stay: firejail dies without it.
        hidden += [f"/run/{name}" for name in sorted(os.listdir("/run")) if name != "firejail"]
    return [path for path in hidden if "," not in path and not path.startswith("/.")]


def _command(plan: JailPlan) -> list[str]:
    # Left out on purpose: --timeout (its end cannot be told apart), --deterministic-shutdown
    # (0.1 s a start), --read-only=/ and --restrict-namespaces (both deny the sessions their own
    # user namespace; each session's own filter denies new ones), limits (set for each session).
    return [
        plan.firejail,
        "--quiet",
        "--noprofile",
        "--net=none",
        "--protocol=unix",
        "--caps.drop=all",
        "--nonewprivs",
        "--noroot",
        "--nogroups",
        f"--seccomp.drop={_DENIED}",
        "--ipc-namespace",
        "--private-tmp",
        "--private-dev",
        "--private-cwd",
        "--private-etc=ld.so.cache,localtime",
        *(f"--blacklist={path}" for path in _hidden_folders(plan.python)),
        f"--rlimit-nofile={_OPEN_FILES}",
        # No "--" before it: firejail would start the program through the account's login shell.
        plan.python,
        "-I",
        "-S",
        "-B",
        "-c",
        BOOTSTRAP,
    ]


def _become(account: Account) -> list[str]:
    """By a program of util-linux rather than by Popen's own `user`, for which Python would fork
    this process, gRPC threads and all, instead of starting the new one directly."""
    if account.name is None:
        return []
    return [
        "/usr/bin/setpriv",
        f"--reuid={account.name}",
        f"--regid={account.gid}",
        "--clear-groups",
    ]


def _environment() -> dict[str, str]:
    environment = {"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8"}
    if _in_container():
        # In a pid namespace firejail believes itself already jailed and runs the program bare,
        # with exit code 0. This variable changes its mind; the self-test checks that it did.
        environment["container"] = "docker"
    return environment


def _in_container() -> bool:
    # Lower case: what systemd and the container tools set.
    if "container" in os.environ or os.path.exists("/run/.containerenv"):
        return True
    try:
        with open("/proc/2/comm") as file:
            return file.read().strip() != "kthreadd"
    except OSError:
        return True


class Jail:
    """A running firejail; `control` is the host's end of the zygote's socket."""

    def __init__(self, process: subprocess.Popen[bytes], control: socket.socket, log: int) -> None:
        self._process = process
        self.control = control
        self._log = log

    @property
    def pid(self) -> int:
        return self._process.pid

    def complaint(self) -> str:
        """What firejail or the zygote wrote to its output, on one line."""
        text = os.pread(self._log, 4096, 0).decode("utf-8", "replace")
        return " ".join(text.split())[-600:] or "it said nothing"

    def kill(self) -> None:
        """At once: the kernel ends everything in the jail with it. SIGTERM would take a second."""
        with contextlib.suppress(OSError):
            self._process.kill()

    def end(self) -> None:
        """Lets the zygote end everything, which also leaves no trace in /run/firejail; kills
        what does not go. Once only; blocks for up to two seconds."""
        self.control.close()
        try:
            self._process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
            self._process.wait()
        os.close(self._log)


def start_jail(plan: JailPlan, settings: Mapping[str, Any]) -> Jail:
    """Returns at once; the zygote says `ready` on the control socket, or the socket closes."""
    # Two pairs: firejail keeps its standard input open for as long as it lives, so only a socket
    # that went through it unseen closes when the zygote does.
    starting, stdin = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    log = os.memfd_create("jail-log", os.MFD_CLOEXEC)
    code = bundle_file(settings)
    try:
        process = subprocess.Popen(
            [*_become(plan.account), *_command(plan)],
            stdin=stdin.fileno(),
            stdout=log,
            stderr=log,
            env=_environment(),
            cwd="/",
            start_new_session=True,
        )
        socket.send_fds(starting, [b"bundle"], [theirs.fileno(), code])
    except OSError as error:
        ours.close()
        os.close(log)
        raise SandboxUnavailable(f"{plan.firejail} could not be started: {error}") from error
    finally:
        for end in (starting, stdin, theirs):
            end.close()
        os.close(code)
    ours.setblocking(False)
    return Jail(process, ours, log)
