"""The jail's first Python process: it has one confined child for each session.

Owns, inside the jail: the making of sessions, the reaping of children, and the end, or the
priority, of those that the watch finds above their limits. Where a session's files are is `homes`'
business; how its process comes is `forker`'s.

Invariants
- What a session does once it is confined is its driver's: a module of `drivers` with
  `prepare()`, called once here for the state that every child inherits, and
  `serve(state, channel)`, called in the confined child, which never returns.
- It runs no foreign code and reads none; it takes commands only from the host, through the socket
  that it was started with.
- When the host's end of that socket closes, for whatever reason, everything in the jail dies
  and this process exits; then nothing of the jail is left.
- The end of a session never stops this process, whatever the session did to its folder or its
  process.

Messages are JSON, one a packet. From the host: `{"new": [ids]}`. To the host: `ready`,
`session` (with the session's socket, its pidfd and its output file), `failed`, `ended` (a list
of [id, wait status]), `over_memory`, `over_disk`, `over_limit`.
"""

from __future__ import annotations

import contextlib
import fcntl
import gc
import importlib
import json
import os
import resource
import select
import signal
import socket
import sys
import time
from collections.abc import Mapping
from typing import Any

from . import forker, preload, wire
from .walls import homes, kernel
from .walls.confine import Confinement
from .watching import measure, share, watch

WATCH_SECONDS = 0.5
_ENDED_AT_ONCE = 1000
"""Maximum sessions in one `ended` message, so that it fits a packet."""
_END_SECONDS = 1.0
"""Time to end processes without a pid namespace, in seconds; the host waits twice as long."""


class Zygote:
    def __init__(self, control: socket.socket, settings: Mapping[str, Any]) -> None:
        self._control = control
        self._jailed = bool(settings["jailed"])
        self._confinement = Confinement(settings["confinement"])
        _allow_many()
        self._homes = homes.homes(settings)
        shared = self._confinement.namespaces
        self._watch = watch.SessionWatch(self._homes.root, settings, own_file_systems=shared)
        self._confinement.prepare()
        preload.find_packages(self._confinement.packages)
        preload.preload(settings["preload"])
        self._driver = importlib.import_module(f".drivers.{settings['driver']}", __package__)
        self._state = self._driver.prepare()
        self._homes.settle()
        self._children: dict[int, watch.Member] = {}
        self._helpers: set[int] = set()
        self._wake_read, self._wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)

    def run(self) -> None:
        """Serves the host until it hangs up. Does not return."""
        kernel.not_dumpable()
        if not self._confinement.namespaces:
            # Otherwise firejail would adopt orphans, and their session would be unknown.
            kernel.adopt_orphans()
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        signal.set_wakeup_fd(self._wake_write, warn_on_full_buffer=False)
        # Objects that exist now are never looked at by a child's collector, so their pages stay
        # shared.
        gc.collect()
        gc.freeze()
        ready = {
            "event": "ready",
            "python": ".".join(map(str, sys.version_info[:3])),
            "disk_bounded": self._homes.bounded,
        }
        self._forker = self._make_forker()
        self._tell(ready, [])
        poll = select.poll()
        poll.register(self._control.fileno(), select.POLLIN)
        poll.register(self._wake_read, select.POLLIN)
        watch_at = 0.0
        while True:
            for descriptor, _ in poll.poll(WATCH_SECONDS * 1000 if self._children else None):
                if descriptor == self._wake_read:
                    self._reap()
                else:
                    self._obey()
            if self._children and time.monotonic() >= watch_at:
                # What cannot be looked at for want of a descriptor is looked at next time.
                with contextlib.suppress(OSError):
                    self._watch_all()
                watch_at = time.monotonic() + WATCH_SECONDS

    def _make_forker(self) -> forker.Forker:
        birth = forker.Birth(self._homes, self._confinement, self._driver, self._state)
        flags = self._confinement.clone_flags
        if not self._confinement.namespaces:
            return forker.Here(birth, flags)
        beside = forker.Beside(birth, flags)
        self._helpers.add(beside.pid)
        return beside

    def _tell(self, message: Mapping[str, Any], descriptors: list[int]) -> None:
        data = json.dumps(message).encode()
        try:
            socket.send_fds(self._control, [data], descriptors)
        except OSError:
            self._end()

    def _obey(self) -> None:
        try:
            packet = self._control.recv(wire.PACKET_BYTES)
        except OSError:
            packet = b""
        if not packet:
            self._end()
        message = json.loads(packet)
        for number in message["new"]:
            try:
                self._new_session(number)
            except OSError as error:
                self._tell({"event": "failed", "id": number, "error": str(error)}, [])

    def _new_session(self, number: int) -> None:
        folder = self._homes.make()
        ours = []
        pid = 0
        try:
            output = os.memfd_create("output")
            ours.append(output)
            fcntl.fcntl(output, fcntl.F_SETFL, os.O_APPEND)
            host, session = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            host_fd, session_fd = host.detach(), session.detach()
            ours += [host_fd, session_fd]
            pid = self._forker.fork(folder, output, session_fd)
            self._children[pid] = watch.Member(pid, number, folder, output)
            ours.remove(output)
            pidfd = os.pidfd_open(pid)
            ours.append(pidfd)
            self._tell({"event": "session", "id": number}, [host_fd, pidfd, output])
        except OSError:
            if pid:
                _kill(pid)
            else:
                self._give_up(folder)
            raise
        finally:
            for descriptor in ours:
                os.close(descriptor)

    def _reap(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(self._wake_read, 4096)
        ended = []
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                break
            if pid == 0:
                break
            if pid == self._forker.pid:
                self._end()  # Without it no session can be made.
            child = self._children.pop(pid, None)
            if child is not None:
                ended.append([child.number, status])
                child.forget()
                self._give_up(child.folder)
            self._helpers.discard(pid)
        for start in range(0, len(ended), _ENDED_AT_ONCE):
            self._tell({"event": "ended", "ended": ended[start : start + _ENDED_AT_ONCE]}, [])

    def _give_up(self, folder: int) -> None:
        helper = self._homes.give_up(folder)
        if helper:
            self._helpers.add(helper)

    def _watch_all(self) -> None:
        others = self._watch.others(self._children, self._helpers)
        for processes, running in self._watch.over_share(self._children, others):
            share.lower(processes, share.niceness(running))
        for excess in self._watch.over_memory(self._children, others):
            self._end_session(excess)
        for excess in self._watch.over_locks(self._children, others):
            self._end_session(excess)
        for excess in self._watch.over_disk(self._children):
            self._end_session(excess)

    def _end_session(self, excess: watch.Excess) -> None:
        # Sent first, so that the host knows the reason before it sees the end.
        self._tell(excess.event, [])
        _kill(excess.member.pid)
        if not self._confinement.namespaces:
            for pid in excess.processes:
                _kill(pid)

    def _end(self) -> None:
        """Kills all that this jail holds, then goes; the files go with the jail."""
        if self._jailed:
            for pid in self._children:
                _kill(pid)
            with contextlib.suppress(OSError):
                os.kill(-1, signal.SIGKILL)
        else:
            self._end_descendants()
            os.waitpid(homes.remove_tree(self._homes.root), 0)
        os._exit(0)

    def _end_descendants(self) -> None:
        """Without a pid namespace, which the kernel would end as a whole."""
        until = time.monotonic() + _END_SECONDS
        while time.monotonic() < until:
            below = measure.descendants(os.getpid())
            if not below:
                return
            # All are stopped before any is killed, so that those that fork fall behind.
            for number in (signal.SIGSTOP, signal.SIGKILL):
                for pid in below:
                    _kill(pid, number)
            with contextlib.suppress(ChildProcessError):
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass


def _kill(pid: int, number: signal.Signals = signal.SIGKILL) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def _allow_many() -> None:
    """Thousands of sessions: two descriptors each, and each a process of this account."""
    for which in (resource.RLIMIT_NOFILE, resource.RLIMIT_NPROC):
        _, hard = resource.getrlimit(which)
        resource.setrlimit(which, (hard, hard))


def main(control: socket.socket, settings: Mapping[str, Any]) -> None:
    if settings["jailed"] and not kernel.in_a_jail():
        raise SystemExit("the program was started without a sandbox around it")
    try:
        zygote = Zygote(control, settings)
    except preload.UnusablePackages as error:
        control.send(json.dumps({"event": "unusable", "reason": str(error)}).encode())
        return
    zygote.run()
