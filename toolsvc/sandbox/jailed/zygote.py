"""The jail's first Python process: it forks one confined child for each session.

Owns, inside the jail: the file system that holds all session folders, the reaping of children,
the removal of their folders, and the watch over their memory and files.

Invariants
- It runs no foreign code and reads none; it is told what to do only by the host, through the
  socket that it was started with.
- When the host's end of that socket closes, for whatever reason, everything in the jail dies
  and this process exits; then nothing of the jail is left.
- A session's folder has an unguessable name below a parent that sessions cannot list. The names
  of others are nowhere in the memory that a session inherits: the zygote holds descriptors.

Messages are JSON, one a packet. From the host: `{"new": [ids]}`. To the host: `ready`,
`session` (with the session's socket, its pidfd and its output file), `failed`, `ended` (a list
of [id, wait status]), `over_memory`, `over_disk`.
"""

from __future__ import annotations

import contextlib
import fcntl
import gc
import json
import os
import select
import signal
import socket
import sys
import time
import traceback
from collections.abc import Mapping
from typing import Any

from . import interpreter, kernel, measure, wire
from .confine import SESSION_SOCKET, Confinement

WATCH_SECONDS = 0.5
_SESSIONS_FULL = 4
"""How many sessions at their disk limit the jail's file system holds."""
_MEMORY_SHARE = 8
"""It never takes more than this part of the machine's memory."""
_PAGE = os.sysconf("SC_PAGE_SIZE")


class _Child:
    """A session's process, as its parent knows it."""

    __slots__ = ("folder", "number")

    def __init__(self, number: int, folder: int) -> None:
        self.number = number
        self.folder = folder


class Zygote:
    def __init__(self, control: socket.socket, settings: Mapping[str, Any]) -> None:
        self._control = control
        self._memory_bytes = int(settings["memory_bytes"])
        self._disk_bytes = int(settings["disk_bytes"])
        self._confinement = Confinement(settings["confinement"])
        self._disk_bounded = False
        self._root = self._make_root(str(settings["root"]))
        self._confinement.prepare()
        self._interpreter = interpreter.Interpreter()
        self._children: dict[int, _Child] = {}
        self._removers: dict[int, int] = {}
        self._nothing = os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC)
        self._wake_read, self._wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)

    def run(self) -> None:
        """Serves the host until it hangs up. Does not return."""
        kernel.not_dumpable()
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
            "disk_bounded": self._disk_bounded,
        }
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
                self._watch_memory()
                self._watch_disk()
                watch_at = time.monotonic() + WATCH_SECONDS

    def _make_root(self, path: str) -> int:
        """The folders' parent: a file system of its own with a size, where that is allowed."""
        os.mkdir(path, 0o700)
        if self._confinement.namespaces:
            memory = os.sysconf("SC_PHYS_PAGES") * _PAGE
            size = min(_SESSIONS_FULL * self._disk_bytes, memory // _MEMORY_SHARE)
            with contextlib.suppress(OSError):
                kernel.mount_own_tmpfs(path, size, size // measure.BYTES_PER_FILE)
                kernel.drop_capabilities(in_own_namespace=True)
                self._disk_bounded = True
        return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

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
        folder = kernel.make_secret_folder(self._root)
        ours = []
        pid = 0
        try:
            output = os.memfd_create("output")
            ours.append(output)
            fcntl.fcntl(output, fcntl.F_SETFL, os.O_APPEND)
            host, session = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            host_fd, session_fd = host.detach(), session.detach()
            ours += [host_fd, session_fd]
            pid = kernel.clone(self._confinement.clone_flags)
            if pid == 0:
                self._be_session(folder, output, session_fd)
            self._children[pid] = _Child(number, folder)
            pidfd = os.pidfd_open(pid)
            ours.append(pidfd)
            self._tell({"event": "session", "id": number}, [host_fd, pidfd, output])
        except OSError:
            if pid:
                _kill(pid)
            else:
                kernel.remove_empty_folder(folder)
                os.close(folder)
            raise
        finally:
            for descriptor in ours:
                os.close(descriptor)

    def _be_session(self, folder: int, output: int, session_fd: int) -> None:
        """The child's whole life. Does not return."""
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            # All of ours are above the four that stay.
            os.dup2(self._nothing, 0, inheritable=True)
            os.dup2(output, 1, inheritable=True)
            os.dup2(output, 2, inheritable=True)
            os.dup2(session_fd, SESSION_SOCKET, inheritable=False)
            channel = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET, 0, fileno=SESSION_SOCKET)
            try:
                self._confinement.apply(folder)
            except BaseException as error:
                reason = f"{type(error).__name__}: {error}".encode()[:1000]
                channel.send(bytes((wire.LAST, wire.BROKEN)) + reason)
                raise
            interpreter.serve(self._interpreter, channel)
        except BaseException:  # noqa: BLE001 - the child of a fork must not return
            os.write(2, traceback.format_exc().encode())
        finally:
            os._exit(70)

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
            child = self._children.pop(pid, None)
            if child is not None:
                ended.append([child.number, status])
                self._remove(child.folder)
            elif pid in self._removers:
                os.close(self._removers.pop(pid))
        if ended:
            self._tell({"event": "ended", "ended": ended}, [])

    def _remove(self, folder: int) -> None:
        """An empty folder goes at once; a full one by a child, since that may take long."""
        if kernel.remove_empty_folder(folder):
            os.close(folder)
            return
        pid = os.fork()
        if pid:
            self._removers[pid] = folder
            return
        try:
            measure.remove_tree(os.readlink(f"/proc/self/fd/{folder}"))
        finally:
            os._exit(0)

    def _watch_memory(self) -> None:
        """Ends sessions whose processes together hold more memory than they may.

        The cheap look counts pages that are still shared with this process as if they were the
        session's own, so only sessions that fail it get the exact figure.
        """
        for pid, members in self._processes_by_session().items():
            if sum(map(measure.resident_bytes, members)) <= self._memory_bytes:
                continue
            held = sum(map(measure.proportional_bytes, members))
            if held > self._memory_bytes and pid in self._children:
                number = self._children[pid].number
                self._tell({"event": "over_memory", "id": number, "held": held}, [])
                self._end_session(pid, members)

    def _watch_disk(self) -> None:
        """Ends sessions that store more than they may. While all together store less than one
        may, nobody has to be measured."""
        status = os.fstatvfs(self._root)
        if (status.f_blocks - status.f_bfree) * status.f_frsize <= self._disk_bytes:
            return
        for pid, child in list(self._children.items()):
            if measure.tree_bytes(child.folder, self._disk_bytes) > self._disk_bytes:
                self._tell({"event": "over_disk", "id": child.number}, [])
                self._end_session(pid, [])

    def _end_session(self, pid: int, members: list[int]) -> None:
        _kill(pid)
        if not self._confinement.namespaces:
            for member in members:
                _kill(member)

    def _processes_by_session(self) -> dict[int, list[int]]:
        pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
        if not self._confinement.namespaces:
            others = [pid for pid in pids if pid not in (1, os.getpid(), *self._removers)]
            return {leader: others for leader in self._children}
        groups: dict[int, list[int]] = {pid: [pid] for pid in self._children}
        known = {1, os.getpid(), *self._removers, *groups}
        strangers = [pid for pid in pids if pid not in known]
        if strangers:
            leaders = {measure.pid_namespace(pid): pid for pid in self._children}
            for pid in strangers:
                leader = leaders.get(measure.pid_namespace(pid))
                if leader:
                    groups[leader].append(pid)
        return groups

    def _end(self) -> None:
        """Kills all that this jail holds, then goes; the file systems go with the jail."""
        for pid in self._children:
            _kill(pid)
        with contextlib.suppress(OSError):
            os.kill(-1, signal.SIGKILL)
        os._exit(0)


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def main(control: socket.socket, settings: Mapping[str, Any]) -> None:
    if not kernel.in_a_jail():
        raise SystemExit("firejail started the program without a sandbox around it")
    Zygote(control, settings).run()
