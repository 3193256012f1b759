"""Forks the processes of sessions, and makes of each new one a confined session.

A fork makes the parent slower too: each page that it writes afterwards is copied first. The zygote
of a shared jail writes hundreds of pages for each session, so a separate process forks there and
does nothing else.

Invariants
- Every session's process is the zygote's child, whichever process forks: only the zygote reaps it
  and ends it.
- The process that forks holds no descriptor of any session, so that what a session costs does not
  grow with their number. It ends with the zygote.
- A new process runs its driver only once it is confined; where that fails, it says so and ends.
"""

from __future__ import annotations

import _signal  # signal.signal puts an enum's lookup and its exception around the same function
import _socket  # a socket.socket is made by six functions of Python, each a page that is copied
import os
import struct
import traceback
from typing import Any, Protocol

from . import wire
from .walls import kernel
from .walls.confine import SESSION_SOCKET, Confinement
from .walls.homes import Homes

_DESCRIPTORS = struct.Struct("=3i")
_PID = struct.Struct("=i")
_RIGHTS = _socket.CMSG_SPACE(_DESCRIPTORS.size)
_AF_UNIX, _SOCK_SEQPACKET = int(_socket.AF_UNIX), int(_socket.SOCK_SEQPACKET)
_STANDARD = 3
"""Descriptors 0 to 2; the sockets of this package stand at the next one."""


class Birth:
    """The steps of a new process until its driver serves calls."""

    def __init__(self, homes: Homes, confinement: Confinement, driver: Any, state: Any) -> None:
        """`driver`: a module, see `zygote`; `state`: what its `prepare` returned."""
        self._homes = homes
        self._confinement = confinement
        self._driver = driver
        self._state = state

    def live(self, folder: int, output: int, session: int) -> None:
        """The process's whole life. Does not return. All three descriptors are above 3."""
        try:
            # Each is opened for this session: what is set of an open file would be set for all
            # that share it.
            os.dup2(os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC), 0)
            os.dup2(output, 1)
            os.dup2(output, 2)
            os.dup2(session, SESSION_SOCKET, False)
            channel = _socket.socket(_AF_UNIX, _SOCK_SEQPACKET, 0, SESSION_SOCKET)
            try:
                self._homes.enter(folder)
                self._confinement.apply(folder)
            except BaseException as error:
                reason = f"{type(error).__name__}: {error}".encode()[:1000]
                channel.send(bytes((wire.LAST, wire.BROKEN)) + reason)
                raise
            self._driver.serve(self._state, channel)
        except BaseException:  # noqa: BLE001 - the child of a fork must not return
            os.write(2, traceback.format_exc().encode())
        finally:
            os._exit(70)


class Forker(Protocol):
    """`pid`: of the process that forks, 0 if it is this one."""

    pid: int

    def fork(self, folder: int, output: int, session: int) -> int:
        """The pid of a new process, the zygote's child, which begins to live with these
        descriptors. Raises OSError if it cannot be made."""


class Here:
    """This process forks."""

    pid = 0

    def __init__(self, birth: Birth, flags: int) -> None:
        self._birth = birth
        self._clone = kernel.Clone(flags)

    def fork(self, folder: int, output: int, session: int) -> int:
        pid = self._clone()
        if pid == 0:
            _leave_signals_alone()
            self._birth.live(folder, output, session)
        return pid


class Beside:
    """A process beside this one forks."""

    def __init__(self, birth: Birth, flags: int) -> None:
        ours, theirs = _socket.socketpair(_AF_UNIX, _SOCK_SEQPACKET)
        self._socket = ours
        self.pid = os.fork()
        if self.pid == 0:
            try:
                _leave_signals_alone()
                # The zygote's own socket goes with this: no other process may hold it open.
                os.dup2(theirs.fileno(), _STANDARD, False)
                theirs.detach()
                ours.close()
                commands = _socket.socket(_AF_UNIX, _SOCK_SEQPACKET, 0, _STANDARD)
                _fork_for(commands, birth, kernel.Clone(flags | kernel.CLONE_PARENT))
            except BaseException:  # noqa: BLE001 - the child of a fork must not return
                os.write(2, traceback.format_exc().encode())
            finally:
                os._exit(70)
        theirs.close()

    def fork(self, folder: int, output: int, session: int) -> int:
        descriptors = _DESCRIPTORS.pack(folder, output, session)
        rights = (_socket.SOL_SOCKET, _socket.SCM_RIGHTS, descriptors)
        self._socket.sendmsg([b"fork"], [rights])
        answer = self._socket.recv(_PID.size)
        if not answer:
            raise OSError("the process that forks has ended")
        (pid,) = _PID.unpack(answer)
        if pid < 0:
            raise OSError(-pid, f"a session's process: {os.strerror(-pid)}")
        return int(pid)


def _fork_for(commands: _socket.socket, birth: Birth, clone: kernel.Clone) -> None:
    """Forks on command until the zygote hangs up."""
    while True:
        data, ancillary, _, _ = commands.recvmsg(16, _RIGHTS)
        if not data:
            return
        folder, output, session = _DESCRIPTORS.unpack(ancillary[0][2])
        try:
            pid = clone()
        except OSError as error:
            pid = -(error.errno or 1)
        if pid == 0:
            birth.live(folder, output, session)
        os.close(folder)
        os.close(output)
        os.close(session)
        commands.send(_PID.pack(pid))


def _leave_signals_alone() -> None:
    """Signals wake the zygote; its children set their own handlers."""
    _signal.set_wakeup_fd(-1)
    _signal.signal(_signal.SIGCHLD, _signal.SIG_DFL)
