"""The processes that decode: at most so many, each for one call at a time.

Invariants
- A call gets a process of its own for as long as it works; nobody else's call is in it.
- A process that was cut short (time limit, cancelling, want of memory, crash) is ended and never
  asked again. Processes hold nothing between calls, so its end costs nothing but the next start.
- What an answer may hold is bounded before it is read.
- `close` leaves no process, and so does the service's death, however it comes.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import sys

import structlog

from toolsvc.errors import RETRY_SECONDS, Reason, Refused, StartError, backend_down
from toolsvc.tools.image.types import Answer, Fault
from toolsvc.tools.image.wire import (
    HEAD,
    Greeting,
    Request,
    WireError,
    length_in,
    pack,
    parse_answer,
)

START_SECONDS = 30.0
_PROGRAM = ("-P", "-m", "toolsvc.tools.image.decoding.worker")
_PASSED_ON = ("PYTHONPATH", "PYTHONHOME", "LD_LIBRARY_PATH")
"""What the interpreter and its packages need to be found; nothing else of the environment."""

_BY_A_FILE = (
    signal.SIGSEGV,
    signal.SIGBUS,
    signal.SIGABRT,
    signal.SIGFPE,
    signal.SIGILL,
    signal.SIGSYS,
)
"""Signals that a decoder's faults end in. Any other end is not the file's doing."""

log = structlog.get_logger(__name__)


class WorkerDied(Exception):
    """`number`: of the signal that ended the process, 0 where none did."""

    def __init__(self, number: int) -> None:
        how = signal.Signals(number).name if number else "by itself"
        super().__init__(f"a decoding process ended: {how}")
        self.by_the_file = number in _BY_A_FILE


class Worker:
    """One process."""

    def __init__(self, process: asyncio.subprocess.Process, channel: socket.socket) -> None:
        self._process = process
        self._channel = channel
        self.greeting = Greeting()
        self.spoilt = False
        """Cut short, or not to be trusted any more."""

    @classmethod
    async def start(cls, memory_bytes: int) -> Worker:
        """WorkerDied or TimeoutError where it does not greet."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        ours.setblocking(False)
        with theirs:
            try:
                process = await asyncio.create_subprocess_exec(
                    sys.executable,
                    *_PROGRAM,
                    str(memory_bytes),
                    stdin=theirs.fileno(),
                    stdout=asyncio.subprocess.DEVNULL,
                    env={name: os.environ[name] for name in _PASSED_ON if name in os.environ},
                )
            except BaseException:
                ours.close()
                raise
        worker = cls(process, ours)
        try:
            async with asyncio.timeout(START_SECONDS):
                worker.greeting = Greeting.model_validate_json(await worker._object())
        except BaseException:
            await worker.kill()
            raise
        return worker

    @property
    def usable(self) -> bool:
        """It rests and may be asked."""
        return not self.spoilt and self._process.returncode is None

    async def ask(self, request: Request, file: int) -> Answer:
        """`file`: a descriptor of what the request is about. WorkerDied."""
        self.spoilt = True  # until it has answered
        try:
            socket.send_fds(self._channel, [pack(request)], [file])
            head = parse_answer(await self._object(), request.limits.long_side)
            answer = head.answer(await self._exactly(head.length))
        except WireError as error:
            log.warning("a decoding process was ended", reason=str(error))
            await self.kill()
            raise WorkerDied(signal.SIGABRT) from error
        except OSError as error:
            raise await self._died() from error
        self.spoilt = answer.unusable is not None and answer.unusable.fault is Fault.MEMORY
        return answer

    async def kill(self) -> None:
        """Ends it at once."""
        self._channel.close()
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
        await self._process.wait()

    async def _object(self) -> bytes:
        return await self._exactly(length_in(await self._exactly(HEAD.size)))

    async def _exactly(self, count: int) -> bytes:
        """WorkerDied where the process ends before."""
        data = bytearray(count)
        at = 0
        while at < count:
            got = await asyncio.get_running_loop().sock_recv_into(
                self._channel, memoryview(data)[at:]
            )
            if not got:
                raise await self._died()
            at += got
        return bytes(data)

    async def _died(self) -> WorkerDied:
        """It has closed its end, so it is about to be gone."""
        self.spoilt = True
        self._channel.close()
        return WorkerDied(max(0, -await self._process.wait()))


class Workers:
    """All processes of the tool."""

    def __init__(self, count: int, memory_bytes: int) -> None:
        self._memory_bytes = memory_bytes
        self._count = count
        self._free: asyncio.Queue[Worker | None] = asyncio.LifoQueue(count)
        for _ in range(count):
            self._free.put_nowait(None)
        self._started = 0

    async def start(self) -> None:
        """Proves that a process can be had. StartError."""
        try:
            worker = await Worker.start(self._memory_bytes)
        except (WorkerDied, WireError, ValueError, TimeoutError, OSError) as error:
            raise StartError(
                f"the image tool's decoding process does not start ({error}): raise "
                "image.memory_mib"
            ) from error
        if worker.greeting.missing:
            await worker.kill()
            raise StartError(
                f"tool 'image' needs the package {worker.greeting.missing}: "
                "pip install 'toolwright[image]'"
            )
        self._started += 1
        self._free.get_nowait()
        self._free.put_nowait(worker)
        log.info("image decoding ready", **worker.greeting.model_dump(exclude={"missing"}))

    async def take(self, patience: float) -> Worker:
        """A process, to be given back. Refused if none was free for `patience` seconds."""
        try:
            async with asyncio.timeout(patience):
                worker = await self._free.get()
        except TimeoutError:
            raise Refused(
                Reason.QUEUE_LIMIT,
                f"no decoding process was free for {patience:g} s",
                retry_after=RETRY_SECONDS,
                mend="send fewer calls at once, or raise image.workers",
            ) from None
        if worker is not None and worker.usable:
            return worker
        try:
            if worker is not None:
                await worker.kill()
            worker = await Worker.start(self._memory_bytes)
        except BaseException as error:
            self._free.put_nowait(None)
            if isinstance(error, WorkerDied | WireError | TimeoutError | OSError):
                raise backend_down(f"no decoding process: {error}") from error
            raise
        self._started += 1
        return worker

    async def give_back(self, worker: Worker) -> None:
        """Once for each `take`."""
        try:
            if not worker.usable:
                await worker.kill()
        finally:
            self._free.put_nowait(worker if worker.usable else None)

    async def close(self) -> None:
        """When all were given back."""
        while not self._free.empty():
            worker = self._free.get_nowait()
            if worker is not None:
                await worker.kill()

    def figures(self) -> dict[str, float]:
        """In the words of `Tool.figures`."""
        return {
            "decoders_busy": self._count - self._free.qsize(),
            "decoders_started_total": self._started,
        }
