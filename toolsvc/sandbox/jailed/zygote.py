"""The jail's first Python process: it forks one confined child for each session.

Owns, inside the jail: the parent folder of all session folders, the reaping of children, the
removal of their folders, and the watch over their memory.

Invariants
- It runs no foreign code and reads none; it is told what to do only by the host, through the
  socket that it was started with.
- When the host's end of that socket closes, for whatever reason, everything in the jail dies
  and this process exits; then nothing of the jail is left.
- A session's folder has an unguessable name below a parent that sessions cannot list; it goes
  when the session's process has gone.

Messages are JSON, one a packet. From the host: `{"new": [ids]}`. To the host:
`ready` (with the folders' parent as a descriptor), `session` (with the session's socket, its
pidfd and its output file), `failed`, `ended` (a list of [id, wait status]), `over_memory`.
"""

from __future__ import annotations

import contextlib
import fcntl
import gc
import json
import os
import select
import shutil
import signal
import socket
import stat
import sys
import time
import traceback
from collections.abc import Mapping
from typing import Any

from . import interpreter, kernel, wire
from .confine import SESSION_SOCKET, Confinement

WATCH_SECONDS = 0.5
_PAGE = os.sysconf("SC_PAGE_SIZE")


class Zygote:
    def __init__(self, control: socket.socket, settings: Mapping[str, Any]) -> None:
        self._control = control
        self._root = str(settings["root"])
        self._memory_bytes = int(settings["memory_bytes"])
        self._confinement = Confinement(settings["confinement"])
        self._confinement.prepare()
        self._interpreter = interpreter.Interpreter()
        self._children: dict[int, tuple[int, str]] = {}
        self._removers: set[int] = set()
        os.mkdir(self._root, 0o700)
        self._root_fd = os.open(self._root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
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
            "landlock_abi": kernel.landlock_abi(),
        }
        self._tell(ready, [self._root_fd])
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
                watch_at = time.monotonic() + WATCH_SECONDS

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
        name = os.urandom(16).hex()
        os.mkdir(name, 0o700, dir_fd=self._root_fd)
        ours = []
        try:
            folder = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=self._root_fd)
            ours.append(folder)
            output = os.memfd_create("output")
            ours.append(output)
            fcntl.fcntl(output, fcntl.F_SETFL, os.O_APPEND)
            host, session = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            host_fd, session_fd = host.detach(), session.detach()
            ours += [host_fd, session_fd]
            pid = kernel.clone(self._confinement.clone_flags)
            if pid == 0:
                self._be_session(name, folder, output, session_fd)
            self._children[pid] = (number, name)
            pidfd = os.pidfd_open(pid)
            ours.append(pidfd)
            self._tell({"event": "session", "id": number, "folder": name}, [host_fd, pidfd, output])
        except OSError:
            if pid := next((p for p, (n, _) in self._children.items() if n == number), 0):
                os.kill(pid, signal.SIGKILL)
            else:
                os.rmdir(name, dir_fd=self._root_fd)
            raise
        finally:
            for descriptor in ours:
                os.close(descriptor)

    def _be_session(self, name: str, folder: int, output: int, session_fd: int) -> None:
        """The child's whole life. Does not return."""
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            # All of ours are above the four that stay.
            os.dup2(self._nothing, 0, inheritable=True)
            os.dup2(output, 1, inheritable=True)
            os.dup2(output, 2, inheritable=True)
            if session_fd != SESSION_SOCKET:
                os.dup2(session_fd, SESSION_SOCKET, inheritable=False)
            channel = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET, 0, fileno=SESSION_SOCKET)
            try:
                self._confinement.apply(os.path.join(self._root, name), folder)
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
            if pid in self._removers:
                self._removers.discard(pid)
                continue
            child = self._children.pop(pid, None)
            if child is not None:
                number, name = child
                ended.append([number, status])
                self._remove(name)
        if ended:
            self._tell({"event": "ended", "ended": ended}, [])

    def _remove(self, name: str) -> None:
        """An empty folder goes at once; a full one by a helper, since it may take long."""
        try:
            os.rmdir(name, dir_fd=self._root_fd)
        except OSError:
            pid = os.fork()
            if pid:
                self._removers.add(pid)
                return
            try:
                _remove_tree(os.path.join(self._root, name))
            finally:
                os._exit(0)

    def _watch_memory(self) -> None:
        """Ends sessions whose processes together hold more memory than they may.

        The cheap look counts pages that are still shared with this process as if they were the
        session's own, so only sessions that fail it get the exact figure.
        """
        groups = self._processes_by_session()
        for pid, members in groups.items():
            if sum(map(_resident_bytes, members)) <= self._memory_bytes:
                continue
            held = sum(map(_proportional_bytes, members))
            if held > self._memory_bytes and pid in self._children:
                number, _ = self._children[pid]
                self._tell({"event": "over_memory", "id": number, "held": held}, [])
                _kill(pid)
                if not self._confinement.namespaces:
                    for member in members:
                        _kill(member)

    def _processes_by_session(self) -> dict[int, list[int]]:
        pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
        if not self._confinement.namespaces:
            me = os.getpid()
            return {leader: [p for p in pids if p not in (1, me)] for leader in self._children}
        groups: dict[int, list[int]] = {pid: [pid] for pid in self._children}
        strangers = [p for p in pids if p not in groups and p != os.getpid() and p != 1]
        if strangers:
            leaders = {_pid_namespace(pid): pid for pid in self._children}
            for pid in strangers:
                leader = leaders.get(_pid_namespace(pid))
                if leader:
                    groups[leader].append(pid)
        return groups

    def _end(self) -> None:
        """Kills all that this jail holds, then goes."""
        for pid in self._children:
            _kill(pid)
        with contextlib.suppress(OSError):
            os.kill(-1, signal.SIGKILL)
        _remove_tree(self._root)
        os._exit(0)


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def _remove_tree(path: str) -> None:
    """Removes what a session left, folders that it locked against itself included."""

    def unlock(function: Any, failed: str, _: Any) -> None:
        try:
            os.chmod(os.path.dirname(failed), stat.S_IRWXU)
            if os.path.isdir(failed) and not os.path.islink(failed):
                os.chmod(failed, stat.S_IRWXU)
                shutil.rmtree(failed, ignore_errors=True)
            else:
                os.unlink(failed)
        except OSError:
            pass

    shutil.rmtree(path, onerror=unlock)


def _resident_bytes(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/statm", "rb") as file:
            return int(file.read().split()[1]) * _PAGE
    except (OSError, IndexError):
        return 0


def _proportional_bytes(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/smaps_rollup", "rb") as file:
            for line in file:
                if line.startswith((b"Pss:", b"Swap")):
                    return int(line.split()[1]) * 1024
    except OSError:
        return _resident_bytes(pid)
    return 0


def _pid_namespace(pid: int) -> str:
    try:
        return os.readlink(f"/proc/{pid}/ns/pid")
    except OSError:
        return ""


def main(control: socket.socket, settings: Mapping[str, Any]) -> None:
    Zygote(control, settings).run()
