"""The folders in which agents live: one a trajectory, removed at its end.

Invariants
- One host uses a base folder: a lock holds it. What an earlier host left is removed at the start.
- A result file is read only if it is a plain file: no link, no pipe.
- A child process removes folders: an agent decides how deep and how large they are.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import stat
import tempfile
from asyncio.subprocess import DEVNULL
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from hashlib import blake2b
from pathlib import Path

import structlog

from agents.environment import RESULT, TASK, task_data
from agents.errors import StartError
from agents.outcomes import MOST_RESULT
from toolwright.types import Task

_LOCK = "lock"

log = structlog.get_logger("agents")


@asynccontextmanager
async def base_folder(run_folder: Path, worker: str, *, jails: bool) -> AsyncIterator[Path]:
    """The folder of one host's agents, in the folder for temporary files. jails: it is in /tmp,
    where jails show it. Raises StartError if another host has it."""
    name = blake2b(f"{run_folder}\0{worker}".encode(), digest_size=8).hexdigest()
    where = Path("/tmp" if jails else tempfile.gettempdir())
    base = where / f"toolwright-agents-{os.geteuid()}-{name}"
    try:
        base.mkdir(mode=0o711, exist_ok=True)
        status = base.lstat()
        if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
            raise StartError(f"{base} belongs to another account: remove it, or set TMPDIR")
        base.chmod(0o711)
        lock = os.open(base / _LOCK, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise StartError(f"{base}: {error.strerror}: set TMPDIR to a folder for agents") from error
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise StartError(
                f"another agents serve of this run is the worker {worker!r}: end it, or name this "
                "one with --worker"
            ) from error
        await _sweep(base)
        yield base
        await _sweep(base)
    finally:
        os.close(lock)


async def _sweep(base: Path) -> None:
    await _remove(*(base / name for name in os.listdir(base) if name != _LOCK))


async def _remove(*paths: Path) -> None:
    """Removes files and folders. What cannot be removed stays, with a warning in the log."""
    if not paths:
        return
    programs = [["rm", "-rf"]]
    if os.geteuid():  # an agent may have locked a folder
        programs.insert(0, ["chmod", "-R", "u+rwx"])
    for program in programs:
        process = await asyncio.create_subprocess_exec(
            *program, "--", *paths, stdin=DEVNULL, stdout=DEVNULL, stderr=DEVNULL
        )
        code = await process.wait()
    if code:
        log.warning("folders_left", paths=[str(path) for path in paths])


@asynccontextmanager
async def work_folder(base: Path, number: int, task: Task) -> AsyncIterator[Path]:
    """A fresh folder with the task's file."""
    folder = base / f"{number}"
    folder.mkdir(mode=0o700)
    try:
        text = json.dumps(task_data(task), ensure_ascii=False)
        (folder / TASK).write_text(text, encoding="utf-8")
        yield folder
    finally:
        await asyncio.shield(asyncio.create_task(_remove(folder)))


def result_bytes(folder: Path) -> bytes | None:
    """The result file, at most `MOST_RESULT` + 1 bytes of it; None without one."""
    try:
        file = os.open(folder / RESULT, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            return None
        with open(file, "rb", closefd=False) as opened:
            return opened.read(MOST_RESULT + 1)
    finally:
        os.close(file)
