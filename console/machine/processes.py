"""The processes of a run or an instrument: each in a session of its own, none left behind.

Owns start, watch and stop. Invariants
- Leaving the context ends every process that was started in it, and what they started: SIGTERM in
  reverse order of their start, SIGKILL to the group after the grace, SIGKILL to whatever slipped
  out of its group.
- A service that ends by itself fails the work in hand at once, with the tail of its log; one that
  has answered before is started again first, as often in an hour as it was allowed.
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
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self, TypeVar

import psutil

from console.errors import ConsoleError, NotReady, ProcessFailed
from toolwright.page.text import plain

T = TypeVar("T")

TAIL_LINES = 25
OUTPUT_LINES = 1000
"""Kept of a process that came to its good end: its warnings are among them."""
TAIL_BYTES = 64_000
KILL_WAIT_S = 5.0
RESTARTS_WITHIN_S = 3600.0
RESTART_PAUSE_S = 1.0
"""Pause before a restart: its port is free again, and a crash loop is slow."""
TICKS = os.sysconf("SC_CLK_TCK")
"""Unit of /proc/PID/stat, in 1/s."""
PR_SET_CHILD_SUBREAPER = 36  # <linux/prctl.h>


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """One process to start. grace_s: from SIGTERM to SIGKILL. shown: as people type it. final: exit
    codes after which a restart does not help."""

    name: str
    argv: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    grace_s: float = 10.0
    folder: Path | None = None
    shown: str = ""
    final: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """A process that came to its good end. said: its last lines."""

    seconds: float
    said: tuple[str, ...]


class Running:
    """A process that was started; a restart gives it a new pid. Several may await `wait`."""

    def __init__(
        self, command: Command, process: asyncio.subprocess.Process, log: Path, said_from: int
    ) -> None:
        """said_from: bytes of the log that were there before."""
        self.command = command
        self.log = log
        self.answered = False
        self.stopping = False
        self._said_from = said_from
        self.became(process)

    def became(self, process: asyncio.subprocess.Process) -> None:
        """The process was started, or started again."""
        self._process = process
        self.end_noted = False
        self.pid = process.pid
        self.created = created(process.pid)

    @property
    def alive(self) -> bool:
        return self._process.returncode is None

    @property
    def status(self) -> int | None:
        """The exit status, once there is one; negative = the signal that ended it."""
        return self._process.returncode

    async def wait(self) -> int:
        """The exit status; negative = the signal that ended it."""
        return await self._process.wait()

    def tell(self, number: signal.Signals) -> None:
        """Sends a signal to the group, which may be gone."""
        with suppress(ProcessLookupError):
            os.killpg(self.pid, number)

    def failed(self, how: str) -> str:
        """One message: what happened, where the log is, and its end."""
        return f"{self.command.name} {how}. The end of {self.log}:\n{_indented(self.said())}"

    def said(self, lines: int = TAIL_LINES) -> list[str]:
        """The last lines that it wrote into its log, where its earlier lives wrote too. They steer
        no terminal."""
        with suppress(OSError), self.log.open("rb") as file:
            file.seek(max(self._said_from, self.log.stat().st_size - TAIL_BYTES))
            text = file.read().decode(errors="replace")
            return [plain(line) for line in text.rstrip().splitlines()[-lines:]]
        return []


Noted = Callable[[Running], None]
"""Is told of a process that was started, started again, or has ended (`status`)."""


class Processes:
    """Context that starts processes and leaves none of them running."""

    def __init__(self, logs: Path, noted: Noted = lambda running: None) -> None:
        self._logs = logs
        self._noted = noted
        self._running: list[Running] = []
        self._watchers: dict[str, asyncio.Task[None]] = {}
        self._death: asyncio.Future[Running] | None = None
        self._before: set[int] = set()
        self._hurry = asyncio.Event()
        self._longest_grace = float("inf")

    async def __aenter__(self) -> Self:
        self._logs.mkdir(parents=True, exist_ok=True)
        self._before = {process.pid for process in descendants()}
        # What loses its parent becomes ours, so that nothing can escape by being orphaned.
        _adopt_orphans(True)
        self._death = asyncio.get_running_loop().create_future()
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self.stop_all()

    async def start(self, command: Command, *, restarts: int = 0) -> Running:
        """A service: from now on its end is a failure, until it is stopped. `restarts`: how often
        in an hour it is started again, once it has answered."""
        running = await self._spawn(command)
        self._watchers[command.name] = asyncio.create_task(self._watch(running, restarts))
        return running

    async def run(self, command: Command) -> Finished:
        """A process that comes to its end. ProcessFailed when it fails."""
        began = time.monotonic()
        running = await self._spawn(command)
        status = await running.wait()
        self._running.remove(running)
        self._note_end(running)
        if status != 0:
            raise ProcessFailed(running.failed(_how(status)), exit_code=status, said=running.said())
        return Finished(seconds=time.monotonic() - began, said=tuple(running.said(OUTPUT_LINES)))

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
            status = await dead.wait()
            raise ProcessFailed(dead.failed(_how(status)), exit_code=status, said=dead.said())
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
        running.answered = True

    async def stop(self, running: Running) -> None:
        """SIGTERM, the grace, SIGKILL; the group is gone afterwards."""
        running.stopping = True
        watcher = self._watchers.pop(running.command.name, None)
        if watcher is not None:
            watcher.cancel()
            await asyncio.gather(watcher, return_exceptions=True)
        if running.alive:
            running.tell(signal.SIGTERM)
            await self._grace(running)
        running.tell(signal.SIGKILL)
        await running.wait()
        if running in self._running:
            self._running.remove(running)
            self._note_end(running)

    async def stop_all(self) -> None:
        """Ends everything, in reverse order of the start, come what may."""
        for watcher in self._watchers.values():
            watcher.cancel()  # who dies from now on is not started again
        await asyncio.gather(*self._watchers.values(), return_exceptions=True)
        self._watchers.clear()
        while self._running:
            await asyncio.shield(self.stop(self._running[-1]))
        await asyncio.to_thread(end_strays, self._before)
        _adopt_orphans(False)

    def runs(self, name: str) -> bool:
        """Whether the process of that name was started here and lives."""
        return any(one.command.name == name and one.alive for one in self._running)

    def hurry(self) -> None:
        """Everything below this process is killed now: for a user who asks a second time."""
        self._hurry.set()
        for process in strays(self._before):
            with suppress(psutil.NoSuchProcess):
                process.kill()

    @property
    def hurried(self) -> asyncio.Event:
        """Set when the user asked a second time."""
        return self._hurry

    def limit_grace(self, seconds: float) -> None:
        """No grace is longer from now on: what a process would wait for is not coming."""
        self._longest_grace = seconds

    async def _spawn(self, command: Command) -> Running:
        log = self._logs / f"{command.name}.log"
        before = log.stat().st_size if log.exists() else 0
        running = Running(command, await self._begin(command, log), log, before)
        self._running.append(running)
        self._noted(running)
        return running

    def _note_end(self, running: Running) -> None:
        if not running.end_noted:
            running.end_noted = True
            self._noted(running)

    async def _begin(self, command: Command, log: Path) -> asyncio.subprocess.Process:
        try:
            out = log.open("ab")
        except OSError as error:
            raise ConsoleError(
                f"{log} cannot be written ({error.strerror}): give this user rights and room there"
            ) from error
        with out:
            try:
                return await asyncio.create_subprocess_exec(
                    *_dies_with_us(),
                    *command.argv,
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=out,
                    stderr=out,
                    env={**os.environ, **command.environment},
                    cwd=command.folder,
                    start_new_session=True,
                )
            except OSError as error:
                raise ProcessFailed(
                    f"{command.name} cannot be started: {command.argv[0]}: {error.strerror}",
                    exit_code=127,
                ) from error

    async def _watch(self, running: Running, restarts: int) -> None:
        """Until the service is dead for good."""
        ends: list[float] = []
        while True:
            status = await running.wait()
            self._note_end(running)
            if status in running.command.final:
                break
            ends = [at for at in ends if time.monotonic() - at < RESTARTS_WITHIN_S]
            if not running.answered or len(ends) >= restarts:
                break
            ends.append(time.monotonic())
            running.tell(signal.SIGKILL)  # what is left of its group holds its port
            await asyncio.sleep(RESTART_PAUSE_S)
            try:
                running.became(await self._begin(running.command, running.log))
            except ConsoleError:
                break
            self._noted(running)
        if self._death is not None and not self._death.done():
            self._death.set_result(running)

    async def _grace(self, running: Running) -> None:
        ended = asyncio.create_task(running.wait())
        hurried = asyncio.create_task(self._hurry.wait())
        await asyncio.wait(
            {ended, hurried},
            timeout=min(running.command.grace_s, self._longest_grace),
            return_when=asyncio.FIRST_COMPLETED,
        )
        hurried.cancel()


def die_with_us() -> bool:
    """Whether the kernel sends SIGTERM to what is started here when this process is killed."""
    return bool(_dies_with_us())


def descendants() -> list[psutil.Process]:
    """All processes below this one."""
    return psutil.Process().children(recursive=True)


def strays(spared: set[int]) -> list[psutil.Process]:
    """Processes below this one but for the spared and what those have started."""
    family = set(spared)
    found = []
    # A parent comes before its children.
    for process in descendants():
        with suppress(psutil.NoSuchProcess):
            if process.pid in family or process.ppid() in family:
                family.add(process.pid)
            else:
                found.append(process)
    return found


def end_strays(spared: set[int]) -> int:
    """Kills and reaps what is still below this process; returns how many there were."""
    found = strays(spared)
    for process in found:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(found, timeout=KILL_WAIT_S)
    return len(found)


def alive(pid: int, began: float) -> bool:
    """Whether the process that was recorded still runs. began: as `created` gave it."""
    found = _stat(pid)
    return found is not None and found[0] not in "ZX" and found[1] == began


def created(pid: int) -> float:
    """When a process began, in seconds since the boot, which no setting of a clock moves: tells it
    from a later one of the same pid. 0 for one that is gone."""
    found = _stat(pid)
    return 0.0 if found is None else found[1]


def _stat(pid: int) -> tuple[str, float] | None:
    """(state, seconds from the boot to the start) of a process; None for one that is gone."""
    with suppress(OSError):
        # The name of the program, in parentheses, may hold anything.
        words = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b") ")[2].split()
        return words[0].decode(), int(words[19]) / TICKS
    return None


def _indented(lines: list[str]) -> str:
    return "\n".join(f"    {line}" for line in lines or ["(it said nothing)"])


def _adopt_orphans(on: bool) -> None:
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, int(on), 0, 0, 0)


def _dies_with_us() -> tuple[str, ...]:
    setpriv = shutil.which("setpriv")
    return (setpriv, "--pdeathsig", "TERM", "--") if setpriv else ()


def _how(status: int) -> str:
    if status >= 0:
        return f"ended with exit code {status}"
    return f"was ended by {signal.Signals(-status).name}"
