"""The processes of an instrument: each in a process group of its own, none left behind.

Owns start, watch and stop. Invariants
- Leaving the context ends every process that was started in it, and what they started: SIGTERM in
  reverse order of their start, SIGKILL to the group after the grace, SIGKILL to whatever slipped
  out of its group.
- A service that ends by itself fails the work in hand at once, with the tail of its log.
- Everything that a process says goes to its log file.
- Should this process be killed outright, the kernel sends SIGTERM to what it started.

It does not know what the processes do.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import shutil
import signal
import time
from collections.abc import Coroutine, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self, TypeVar

import psutil

from bench.errors import NotReady, ProcessFailed

T = TypeVar("T")

TAIL_LINES = 25
KILL_WAIT_S = 5.0
PR_SET_CHILD_SUBREAPER = 36  # <linux/prctl.h>


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """One process to start. `grace_s`: from SIGTERM to SIGKILL."""

    name: str
    argv: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    grace_s: float = 10.0


class Running:
    """A process that was started; `wait` may be awaited by several."""

    def __init__(self, command: Command, process: asyncio.subprocess.Process, log: Path) -> None:
        self.command = command
        self.log = log
        self.pid = process.pid
        self.began = time.monotonic()
        self._process = process

    @property
    def alive(self) -> bool:
        return self._process.returncode is None

    async def wait(self) -> int:
        """The exit status; negative = the signal that ended it."""
        return await self._process.wait()

    def tell(self, number: signal.Signals) -> None:
        """Sends a signal to the group, which may be gone."""
        with suppress(ProcessLookupError):
            os.killpg(self.pid, number)

    def failed(self, how: str) -> str:
        """One message: what happened, where the log is, and its end."""
        return f"{self.command.name} {how}. The end of {self.log}:\n{tail(self.log)}"


class Processes:
    """Context that starts processes and leaves none of them running."""

    def __init__(self, logs: Path) -> None:
        self._logs = logs
        self._running: list[Running] = []
        self._watchers: dict[str, asyncio.Task[None]] = {}
        self._death: asyncio.Future[Running] | None = None
        self._before: set[int] = set()
        self._hurry = asyncio.Event()

    async def __aenter__(self) -> Self:
        self._logs.mkdir(parents=True, exist_ok=True)
        self._before = {process.pid for process in descendants()}
        # What loses its parent becomes ours, so that nothing can escape by being orphaned.
        _adopt_orphans(True)
        self._death = asyncio.get_running_loop().create_future()
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self.stop_all()

    async def start(self, command: Command) -> Running:
        """A service: from now on its end is a failure, until it is stopped."""
        running = await self._spawn(command)
        self._watchers[command.name] = asyncio.create_task(self._watch(running))
        return running

    async def run(self, command: Command) -> float:
        """A process that comes to its end; returns its seconds. ProcessFailed when it fails."""
        running = await self._spawn(command)
        status = await running.wait()
        if status != 0:
            raise ProcessFailed(running.failed(_how(status)))
        self._running.remove(running)
        return time.monotonic() - running.began

    async def while_alive(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of `work`. ProcessFailed as soon as a service ends by itself."""
        assert self._death is not None, "enter the context first"
        task = asyncio.create_task(work)
        both: set[asyncio.Future[Any]] = {task, self._death}
        try:
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                return task.result()
            dead = self._death.result()
            raise ProcessFailed(dead.failed(_how(await dead.wait())))
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def until_ready(
        self, running: Running, probe: Coroutine[Any, Any, None], seconds: float
    ) -> None:
        """Waits for `probe`. NotReady after `seconds`."""
        try:
            async with asyncio.timeout(seconds):
                await probe
        except TimeoutError as error:
            how = f"did not answer within {seconds:.0f} s"
            raise NotReady(running.failed(how)) from error

    async def stop(self, running: Running) -> None:
        """SIGTERM, the grace, SIGKILL; the group is gone afterwards."""
        watcher = self._watchers.pop(running.command.name, None)
        if watcher is not None:
            watcher.cancel()
        if running.alive:
            running.tell(signal.SIGTERM)
            await self._grace(running)
        running.tell(signal.SIGKILL)
        await running.wait()
        if running in self._running:
            self._running.remove(running)

    async def stop_all(self) -> None:
        """Ends everything, in reverse order of the start, come what may."""
        while self._running:
            await asyncio.shield(self.stop(self._running[-1]))
        await asyncio.to_thread(end_strays, self._before)
        _adopt_orphans(False)

    def hurry(self) -> None:
        """No grace from now on: for a user who asks a second time."""
        self._hurry.set()

    async def _spawn(self, command: Command) -> Running:
        log = self._logs / f"{command.name}.log"
        with log.open("ab") as out:
            process = await asyncio.create_subprocess_exec(
                *_dies_with_us(),
                *command.argv,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                env={**os.environ, **command.environment},
                start_new_session=True,
            )
        running = Running(command, process, log)
        self._running.append(running)
        return running

    async def _watch(self, running: Running) -> None:
        await running.wait()
        if self._death is not None and not self._death.done():
            self._death.set_result(running)

    async def _grace(self, running: Running) -> None:
        ended = asyncio.create_task(running.wait())
        hurried = asyncio.create_task(self._hurry.wait())
        await asyncio.wait(
            {ended, hurried}, timeout=running.command.grace_s, return_when=asyncio.FIRST_COMPLETED
        )
        hurried.cancel()


def descendants() -> list[psutil.Process]:
    """All processes below this one."""
    return psutil.Process().children(recursive=True)


def end_strays(spared: set[int]) -> int:
    """Kills and reaps what is still below this process; returns how many there were."""
    strays = [process for process in descendants() if process.pid not in spared]
    for process in strays:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(strays, timeout=KILL_WAIT_S)
    return len(strays)


def tail(log: Path, lines: int = TAIL_LINES) -> str:
    """The last lines of a log, indented."""
    text = log.read_text(errors="replace").rstrip()
    kept = text.splitlines()[-lines:] or ["(it is empty)"]
    return "\n".join(f"    {line}" for line in kept)


def _adopt_orphans(on: bool) -> None:
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, int(on), 0, 0, 0)


def _dies_with_us() -> tuple[str, ...]:
    setpriv = shutil.which("setpriv")
    return (setpriv, "--pdeathsig", "TERM", "--") if setpriv else ()


def _how(status: int) -> str:
    if status >= 0:
        return f"ended with exit code {status}"
    return f"was ended by {signal.Signals(-status).name}"
