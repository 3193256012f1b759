"""Starts one jail and hands out the socket to the zygote in it.

The jail is the outer wall around many sessions (or one, see `Isolation.PER_SESSION`): no
network, no capabilities, a private /tmp and /dev, and no folder in sight that Python does not
need. What builds it is the plan's backend.

Invariants
- The jail never runs as root and gets an environment of ours, not the service's.
- It ends when its control socket closes; firejail outlives its parent otherwise.
"""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import socket
import subprocess
from collections.abc import Mapping
from typing import Any

from toolsvc.sandbox.bundle import BOOTSTRAP, bundle_file
from toolsvc.sandbox.config import Backend
from toolsvc.sandbox.errors import SandboxDown, SandboxUnavailable
from toolsvc.sandbox.jailed.walls import bpf, kernel
from toolsvc.sandbox.plan import JailPlan
from toolwright.jail import bubblewrap, firejail
from toolwright.jail.view import View, become

_OPEN_FILES = 32768
"""Most open files of a zygote: it holds two for each of its sessions."""
_END_SECONDS = 2.0
_PASSING = (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN)
"""Errors that pass: the machine or the service lacks a resource at the moment."""


class Jail:
    """A running jail; `control` is the host's end of the zygote's socket."""

    def __init__(self, process: subprocess.Popen[bytes], control: socket.socket, log: int) -> None:
        self._process = process
        self.control = control
        self._log = log

    @property
    def pid(self) -> int:
        return self._process.pid

    def complaint(self) -> str:
        """What the backend or the zygote wrote to its output, on one line."""
        text = os.pread(self._log, 4096, 0).decode("utf-8", "replace")
        return " ".join(text.split())[-600:] or "it said nothing"

    def kill(self) -> None:
        """Kills the jail at once: the kernel ends everything in it too. SIGTERM would take a
        second."""
        with contextlib.suppress(OSError):
            self._process.kill()

    def end(self) -> None:
        """Lets the zygote end everything, which also leaves no trace in /run/firejail; then kills
        remaining processes. Call it once; it blocks for up to two seconds."""
        self.control.close()
        try:
            self._process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
            self._process.wait()
        os.close(self._log)


def start_jail(plan: JailPlan, settings: Mapping[str, Any]) -> Jail:
    """Returns at once; the zygote says `ready` on the control socket, or the socket closes.

    Raises SandboxUnavailable if the jail can never start here, SandboxDown if it cannot start at
    the moment.
    """
    # Two pairs: firejail keeps its standard input open for as long as it lives, so only a socket
    # that went through it unseen closes when the zygote does.
    with contextlib.ExitStack() as kept, contextlib.ExitStack() as lent:
        try:
            starting, stdin = _pair(lent, lent)
            ours, theirs = _pair(kept, lent)
            log = os.memfd_create("jail-log", os.MFD_CLOEXEC)
            kept.callback(os.close, log)
            code = bundle_file(settings)
            lent.callback(os.close, code)
            around, environment, more = _around(plan, int(settings["disk_bytes"]), lent)
            process = subprocess.Popen(
                [*become(plan.account), *around, plan.python, "-I", "-S", "-B", "-c", BOOTSTRAP],
                stdin=stdin.fileno(),
                stdout=log,
                stderr=log,
                env=environment,
                cwd="/",
                start_new_session=True,
                pass_fds=more,
            )
            socket.send_fds(starting, [b"bundle"], [theirs.fileno(), code])
        except OSError as error:
            kind = SandboxDown if error.errno in _PASSING else SandboxUnavailable
            raise kind(f"the sandbox could not be started: {error}") from error
        kept.pop_all()
    ours.setblocking(False)
    return Jail(process, ours, log)


def _pair(
    one: contextlib.ExitStack, other: contextlib.ExitStack
) -> tuple[socket.socket, socket.socket]:
    """Connected sockets, each closed by one of the stacks."""
    ends = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    return one.enter_context(ends[0]), other.enter_context(ends[1])


def _around(
    plan: JailPlan, disk_bytes: int, inherited: contextlib.ExitStack
) -> tuple[list[str], dict[str, str], tuple[int, ...]]:
    """The command before the interpreter's, its environment, and the descriptors it inherits."""
    environment = {"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8"}
    view = View(folders=plan.folders)
    if plan.backend is Backend.FIREJAIL:
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        most = _OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, _OPEN_FILES)
        return firejail.command(plan.program, view, most), firejail.environment(), ()
    if plan.backend is Backend.BUBBLEWRAP:
        descriptor = os.memfd_create("jail-filter", os.MFD_CLOEXEC)
        inherited.callback(os.close, descriptor)
        os.write(descriptor, bpf.zygote_program(kernel.MACHINE))
        os.lseek(descriptor, 0, os.SEEK_SET)
        around = bubblewrap.command(
            plan.program, view, filter_file=descriptor, disk_bytes=disk_bytes
        )
        return around, environment, (descriptor,)
    return [], environment, ()
