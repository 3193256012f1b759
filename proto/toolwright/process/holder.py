"""The process that listens at a port of this machine, from /proc. Standard library only.

Processes of other users and of other containers are invisible, and are not named.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

PROC = Path("/proc")
LISTENS = "0A"
WORDS, LONGEST = 4, 80
"""Words and characters of a command line that are shown."""


def holder_of(port: int) -> str:
    """The process that listens at a TCP port, as "process PID (COMMAND)"; "" if none is visible."""
    sockets = set(_sockets(port))
    if not sockets:
        return ""
    for process in PROC.iterdir():
        if process.name.isdecimal() and _has_one(process, sockets):
            return f"process {process.name} ({_command(process)})"
    return ""


def _sockets(port: int) -> Iterator[str]:
    """Each listening socket of the port as "socket:[INODE]", the form of /proc/PID/fd."""
    for table in ("tcp", "tcp6"):
        with suppress(OSError, IndexError, ValueError):
            for line in (PROC / "net" / table).read_text(encoding="utf-8").splitlines()[1:]:
                _, local, _, state, *rest = line.split()
                if state == LISTENS and int(local.rpartition(":")[2], 16) == port:
                    yield f"socket:[{rest[5]}]"


def _has_one(process: Path, sockets: set[str]) -> bool:
    with suppress(OSError):
        for handle in (process / "fd").iterdir():
            with suppress(OSError):
                if os.readlink(handle) in sockets:
                    return True
    return False


def _command(process: Path) -> str:
    with suppress(OSError):
        words = (process / "cmdline").read_bytes().decode("utf-8", "replace").split("\0")[:WORDS]
        if any(words):
            text = " ".join([words[0].rpartition("/")[2], *words[1:]]).strip()
            return "".join(sign if sign.isprintable() else "?" for sign in text)[:LONGEST]
    return "of unknown name"
