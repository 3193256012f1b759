"""The jail of an agent: no network but a port of its own loopback, which leads to the ingress.

The jail's first program opens that port, hands the listening socket out, and starts the agent. The
host accepts on the socket and forwards bytes to the ingress. So the jail needs no way out, and no
file system for a socket. When the agent ends, the first program kills all others of the jail.

Invariants
- The jail never runs as root. It sees the system, the agent's own folder, and `folders`.
- The key of the trajectory travels over a socket, never in a command line.
- A jail is used only after `selftest` has tried in vain what an agent must not do.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import socket
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from agents.errors import StartError
from toolwright.jail import bubblewrap, firejail
from toolwright.jail.view import (
    ACCOUNTS,
    Account,
    View,
    become,
    folder_fault,
    jail_account,
    shown_folders,
)

PORT = 8080
"""Port of the ingress inside of a jail."""
PYTHON = "/usr/bin/python3"
"""Runs the first program of a jail."""
READY_S = 30.0
"""Longest time from the start of a jail to its socket, in seconds."""
_ETC = ("group", "hosts", "nsswitch.conf", "passwd")

FIRST = """
import json, os, signal, socket, sys
start = socket.socket(fileno=os.dup(0))
given = json.loads(start.recv(1 << 20))
if os.readlink("/proc/self/ns/pid") == given["outside"]:
    sys.exit("no pid namespace of its own")
listener = socket.create_server(("127.0.0.1", given["port"]), backlog=128)
socket.send_fds(start, [b"listens"], [listener.fileno()])
listener.close()
nothing = os.open("/dev/null", os.O_RDONLY)
os.dup2(nothing, 0)
os.close(nothing)
agent = os.fork()
if agent == 0:
    os.chdir(given["folder"])
    os.execvpe(given["argv"][0], given["argv"], given["environment"])
code = os.waitstatus_to_exitcode(os.waitpid(agent, 0)[1])
start.send(json.dumps(code if code >= 0 else 128 - code).encode())
try:
    os.kill(-1, signal.SIGKILL)  # firejail would wait for what the agent left
except ProcessLookupError:
    pass
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Jail:
    """How the agents of a task are locked in. folders: real paths that they may read."""

    kind: str
    program: str
    account: Account
    folders: tuple[str, ...]

    def words(self, own: Path) -> list[str]:
        """Command line of a jail. own: folder of the agent, which lies in /tmp."""
        view = View(folders=self.folders, own=str(own), etc=_ETC, loopback=True)
        if self.kind == "firejail":
            around = firejail.command(self.program, view)
        else:
            around = bubblewrap.command(self.program, view)
        return [*become(self.account), *around, PYTHON, "-I", "-S", "-B", "-c", FIRST]

    def environment(self) -> dict[str, str]:
        """Variables of the program that makes the jail."""
        if self.kind == "firejail":
            return firejail.environment()
        return {"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8"}

    def give(self, folder: Path) -> None:
        """Makes a folder and its files the account's."""
        if self.account.other:
            for path in (folder, *folder.iterdir()):
                os.chown(path, self.account.uid, self.account.gid, follow_symlinks=False)


def make_jail(kind: str, program: str, folders: Sequence[str]) -> Jail:
    """kind: firejail or bwrap. program: the agent's. The jail shows the files of its installation,
    if it lies in a folder `bin`. folders: real paths that it shows as well. Raises StartError."""
    found = shutil.which(kind)
    if found is None:
        raise StartError(f"{kind} is not on PATH: install it, or set task.agent.sandbox")
    if not os.access(PYTHON, os.X_OK):
        raise StartError(f"a jail needs the system's {PYTHON}: `apt-get install python3`")
    account = jail_account()
    if account is None:
        raise StartError(
            f"the host runs as root, and no account {' or '.join(ACCOUNTS)} exists: "
            f"`useradd --system --no-create-home {ACCOUNTS[0]}` makes one"
        )
    every = shown_folders(program, folders)
    for folder in every:
        if fault := folder_fault(folder, account):
            raise StartError(f"task.agent: {fault}")
    return Jail(kind=kind, program=found, account=account, folders=every)


class JailStart:
    """The host's end of a jail's start. Use it as a context manager.

    `stdin` is the descriptor of the jail's input. firejail's own exit code is that of the jail's
    last process, so the agent's comes over the same socket.
    """

    def __init__(
        self,
        words: Sequence[str],
        folder: Path,
        environment: Mapping[str, str],
        **more: str,
    ) -> None:
        """words, environment: the agent's. folder: in which it begins. more: what a first program
        of another kind needs. Raises OSError."""
        given = {
            **more,
            "argv": list(words),
            "folder": str(folder),
            "environment": dict(environment),
            "port": PORT,
            "outside": os.readlink("/proc/self/ns/pid"),
        }
        self._ours, self._theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._ours.setblocking(False)
        self._ours.send(json.dumps(given).encode())

    def __enter__(self) -> JailStart:
        return self

    def __exit__(self, *_: object) -> None:
        self._ours.close()
        self._theirs.close()

    @property
    def stdin(self) -> int:
        return self._theirs.fileno()

    def exit_code(self) -> int | None:
        """The agent's exit code, after the jail's end; None if the jail ended before the agent."""
        try:
            return int(self._ours.recv(64))
        except (OSError, ValueError):
            return None

    async def listener(self) -> socket.socket | None:
        """The jail's listening socket; None if the jail ended before it had one."""
        self._theirs.close()  # the jail's end alone is open now
        arrived = asyncio.Event()
        loop = asyncio.get_running_loop()
        loop.add_reader(self._ours, arrived.set)
        try:
            async with asyncio.timeout(READY_S):
                await arrived.wait()
        except TimeoutError:
            return None
        finally:
            loop.remove_reader(self._ours)
        with suppress(OSError):
            _, descriptors, _, _ = socket.recv_fds(self._ours, 64, 1)
            if descriptors:
                return socket.socket(fileno=descriptors[0])
        return None
