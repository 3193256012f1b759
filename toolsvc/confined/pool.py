"""The pool: what a tool hands a stranger's bytes to.

Invariants
- A job has a process of its own, which ends with it: nothing of one input is left for the next.
- A place is free again when its process is gone, never before.
- An answer is read when its process is gone, and has no more bytes than were asked for.
- A nursery that is lost is replaced at the next job; what was in it is PoolDown.
- `close` leaves no process, and so does the service's death, however it comes.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator
from typing import BinaryIO

import structlog

from toolsvc.confined.child import ANSWERED, NO_MEMORY, RAISED
from toolsvc.confined.errors import CannotStart, InputFailed, InputFault, PoolDown
from toolsvc.confined.nursery import Greeting
from toolsvc.confined.places import Places
from toolsvc.sandbox.config import SandboxConfig
from toolsvc.sandbox.errors import SandboxUnavailable
from toolsvc.sandbox.plan import find_account

START_SECONDS = 60.0
_KILL_SECONDS = 5.0
"""In which a killed child is gone, or the nursery is ended as well."""
_IN_A_THREAD = 1 << 20
"""Bytes of an answer that are not read on the loop."""
_LONGEST_REQUEST = 32 * 1024
_LONGEST_REPLY = 1024
_TOLD = 4096
"""Bytes of the self-test's answer."""
_PASSED_ON = ("PYTHONPATH", "PYTHONHOME", "LD_LIBRARY_PATH")
"""What the interpreter and its packages need to be found; nothing else of the environment."""
_HUGE_PAGES = {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}
"""Every job's memory is fresh: taken 2 MiB at a time, a photo costs half as much as in 4 KiB."""

log = structlog.get_logger(__name__)


class ConfinedPool:
    """`module`: the parser, by name (see the package). `count`: jobs at once; as many more where
    jobs take long. `memory_bytes`: address space of each."""

    def __init__(
        self, module: str, *, count: int, memory_bytes: int, sandbox: SandboxConfig | None = None
    ) -> None:
        self._module = module
        self._memory_bytes = memory_bytes
        self._sandbox = sandbox or SandboxConfig()
        self._places = Places(count)
        self._nursery: _Nursery | None = None
        self._starting = asyncio.Lock()
        self._jobs = 0

    async def start(self) -> None:
        """Proves that a job can be confined here. Raises CannotStart."""
        try:
            nursery = await self._start_nursery()
            with _memory_file() as nothing, _memory_file() as said:
                async with asyncio.timeout(START_SECONDS):
                    status = await nursery.run(None, nothing.fileno(), said.fileno(), _TOLD)
                told = os.pread(said.fileno(), _TOLD, 0).decode()
        except (PoolDown, TimeoutError) as error:
            await self.close()
            raise CannotStart(f"its self-test did not end: {error}") from error
        if status != ANSWERED or told:
            await self.close()
            raise CannotStart(f"it can {told}" if told else f"it cannot be confined ({status})")
        log.info("confined pool ready", parser=self._module, landlock_abi=nursery.landlock_abi)

    async def close(self) -> None:
        """What runs is PoolDown."""
        if self._nursery is not None:
            await self._nursery.end()

    def figures(self) -> dict[str, float]:
        """In the words of `Tool.figures`."""
        return {"confined_jobs_busy": self._places.busy, "confined_jobs_total": self._jobs}

    @contextlib.asynccontextmanager
    async def place(self, caller: str, patience: float) -> AsyncIterator[Jobs]:
        """A place for one job after the other. PoolFull after `patience` seconds. `caller`: among
        callers places are shared fairly."""
        place = await self._places.take(caller, patience)
        jobs = Jobs(self)
        try:
            yield jobs
        finally:
            last = jobs._last
            if last is None or last.done():
                self._places.leave(place)
            else:
                last.add_done_callback(lambda _: self._places.leave(place))

    async def _run(
        self, jobs: Jobs, request: str, file: BinaryIO, seconds: float, most: int
    ) -> bytes:
        if len(request) > _LONGEST_REQUEST:
            raise ValueError(f"a request of {len(request)} characters; at most {_LONGEST_REQUEST}")
        nursery = await self._living_nursery()
        self._jobs += 1
        with _memory_file() as answer:
            job = nursery.run(request, file.fileno(), answer.fileno(), most)
            jobs._last = job
            try:
                await asyncio.wait((job,), timeout=seconds)
            finally:
                late = not job.done()
                if late:
                    nursery.kill(job)
            if late:
                raise InputFailed(InputFault.TIME, f"more than {seconds:g} s")
            return await _outcome(job.result(), answer, most)

    async def _living_nursery(self) -> _Nursery:
        async with self._starting:
            if self._nursery is None or self._nursery.ended:
                try:
                    return await self._start_nursery()
                except CannotStart as error:
                    raise PoolDown(str(error)) from error
            return self._nursery

    async def _start_nursery(self) -> _Nursery:
        try:
            account = find_account(self._sandbox)
        except SandboxUnavailable as error:
            raise CannotStart(str(error)) from error
        become = (str(account.uid), str(account.gid)) if account.other else ()
        self._nursery = await _Nursery.start(self._module, str(self._memory_bytes), *become)
        return self._nursery


class Jobs:
    """A place: one job at a time."""

    def __init__(self, pool: ConfinedPool) -> None:
        self._pool = pool
        self._last: asyncio.Future[int | None] | None = None

    async def run(self, request: str, file: BinaryIO, *, seconds: float, most: int) -> bytes:
        """The parser's answer, of at most `most` bytes. `file` is read from where it stands.
        Raises InputFailed or PoolDown. A caller that is cancelled leaves no process."""
        return await self._pool._run(self, request, file, seconds, most)


async def _outcome(status: int | None, answer: BinaryIO, most: int) -> bytes:
    size = os.fstat(answer.fileno()).st_size
    if status == ANSWERED and size <= most:
        if size > _IN_A_THREAD:
            return await asyncio.to_thread(os.pread, answer.fileno(), size, 0)
        return os.pread(answer.fileno(), size, 0)
    if status is None or status == -signal.SIGKILL:
        raise PoolDown("a confined process could not be had, or was killed from outside")
    if status == NO_MEMORY:
        raise InputFailed(InputFault.MEMORY)
    if status in (ANSWERED, RAISED):
        said = os.pread(answer.fileno(), 200, 0).decode("utf-8", "replace")
        log.info("a parser failed", said=said if status == RAISED else f"{size} bytes")
        raise InputFailed(InputFault.BROKEN)
    raise InputFailed(InputFault.CRASH, str(status))


def _memory_file() -> BinaryIO:
    return open(os.memfd_create("confined", os.MFD_CLOEXEC), "w+b")


def file_of(data: bytes) -> BinaryIO:
    """An input that is in memory; the caller closes it."""
    file = _memory_file()
    file.write(data)
    file.seek(0)
    return file


class _Nursery:
    """The service's end of a nursery."""

    def __init__(self, process: asyncio.subprocess.Process, channel: socket.socket) -> None:
        self._process = process
        self._channel = channel
        self._numbers = itertools.count(1)
        self._jobs: dict[int, asyncio.Future[int | None]] = {}
        self._reader: asyncio.Task[None] | None = None
        self.landlock_abi = 0
        self.ended = False

    @classmethod
    async def start(cls, *arguments: str) -> _Nursery:
        """Raises CannotStart."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setblocking(False)
        with theirs:
            try:
                process = await asyncio.create_subprocess_exec(
                    *(sys.executable, "-P", "-m", "toolsvc.confined.nursery", *arguments),
                    stdin=theirs.fileno(),
                    stdout=asyncio.subprocess.DEVNULL,
                    env=_HUGE_PAGES
                    | {name: os.environ[name] for name in _PASSED_ON if name in os.environ},
                )
            except OSError as error:
                ours.close()
                raise CannotStart(f"no process can be started: {error}") from error
            except BaseException:
                ours.close()
                raise
        nursery = cls(process, ours)
        try:
            async with asyncio.timeout(START_SECONDS):
                greeting = await nursery._greeting()
        except BaseException as error:
            await nursery.end()
            if isinstance(error, ValueError | OSError | TimeoutError):
                raise CannotStart("it ended early, or has too little memory") from error
            raise
        nursery.landlock_abi = greeting.landlock_abi
        nursery._reader = asyncio.create_task(nursery._read())
        return nursery

    async def _greeting(self) -> Greeting:
        said = await asyncio.get_running_loop().sock_recv(self._channel, _LONGEST_REPLY)
        greeting = Greeting(*json.loads(said))
        if greeting.missing:
            raise CannotStart(f"{greeting.missing} is not installed", greeting.missing)
        return greeting

    def run(
        self, request: str | None, file: int, answer: int, most: int
    ) -> asyncio.Future[int | None]:
        """Done when the job's process is gone: its status. Raises PoolDown."""
        number = next(self._numbers)
        job: asyncio.Future[int | None] = asyncio.get_running_loop().create_future()
        # A caller that was cancelled asks for no result.
        job.add_done_callback(lambda done: done.cancelled() or done.exception())
        message = {"run": number, "request": request, "most": most}
        try:
            socket.send_fds(self._channel, [json.dumps(message).encode()], [file, answer])
        except OSError as error:
            self._lost()
            raise PoolDown(f"the nursery of confined processes is gone: {error}") from error
        self._jobs[number] = job
        return job

    def kill(self, job: asyncio.Future[int | None]) -> None:
        """Its process ends; if it does not, the nursery does."""
        loop = asyncio.get_running_loop()
        numbers = [number for number, one in self._jobs.items() if one is job]
        try:
            for number in numbers:
                self._channel.send(json.dumps({"kill": number}).encode())
        except OSError:
            self._lost()
        alarm = loop.call_later(_KILL_SECONDS, self._lost)
        job.add_done_callback(lambda _: alarm.cancel())

    async def end(self) -> None:
        self._lost()
        if self._reader is None:
            self._channel.close()
        else:
            await asyncio.wait((self._reader,))
        await self._process.wait()

    def _lost(self) -> None:
        """Its children end with it."""
        self.ended = True
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()

    async def _read(self) -> None:
        """Until the nursery is gone."""
        loop = asyncio.get_running_loop()
        try:
            while packet := await loop.sock_recv(self._channel, _LONGEST_REPLY):
                told = json.loads(packet)
                job = self._jobs.pop(told["ended"], None)
                if job is not None and not job.done():
                    job.set_result(told["status"])
        except OSError as error:
            log.warning("a nursery was lost", reason=str(error))
        finally:
            self._lost()
            await self._process.wait()
            self._channel.close()
            for job in self._jobs.values():
                if not job.done():
                    job.set_exception(PoolDown("the nursery of confined processes has ended"))
            self._jobs.clear()
