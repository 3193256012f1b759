"""The front's side of one worker: a process that is started by exec, so at any time. The front
talks to it over its standard input and output.

When the front ends, by whatever signal, so does the worker.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
from collections.abc import Callable
from typing import Any

import structlog

from toolsvc.errors import StartError
from toolsvc.fleet.hosts import BEAT_SECONDS, HostGone, HostSilent, Ready
from toolsvc.fleet.local.messages import (
    ASK_METRICS,
    ASK_SESSIONS,
    Assignment,
    Said,
    longest_line,
)

WORKER = (sys.executable, "-P", "-m", "toolsvc.fleet.local.worker")
START_SECONDS = 600.0
"""Longest wait for a worker to listen, in seconds: a large index takes minutes. Then the worker is
killed, because a worker that hangs would keep its slot empty for ever."""
ANSWER_SECONDS = 30.0
"""Longest wait for a worker to list its sessions, in seconds; it may be computing. Then it is
checked over gRPC."""

log = structlog.get_logger("toolsvc.fleet")


class Child:
    """A `HostProcess`."""

    def __init__(self, assignment: Assignment, closed: Callable[[str], None]) -> None:
        """`closed`: see `Wanted`."""
        self._assignment = assignment
        self._closed = closed
        self._name = f"worker {assignment.slot}"
        self._process: asyncio.subprocess.Process | None = None
        self._hearing: asyncio.Task[None] | None = None
        self._asked: dict[str, asyncio.Future[Any]] = {}
        """Pending answers, by field of `Said`: one question of a kind at a time."""

    async def start(self) -> Ready:
        try:
            self._process = await asyncio.create_subprocess_exec(
                *WORKER,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                limit=longest_line(self._assignment.config),
                start_new_session=True,  # Ctrl-C is for the front, which drains its workers.
            )
        except OSError as error:
            raise StartError(f"{self._name} could not be started: {error}") from error
        self._hearing = asyncio.create_task(self._hear(self._process))
        try:
            async with asyncio.timeout(START_SECONDS):
                ready: Ready = await self._ask(self._assignment.line(), "ready")
                return ready
        except TimeoutError:
            raise StartError(
                f"{self._name} did not start within {START_SECONDS:g} s; see its errors"
            ) from None
        except HostGone:
            raise StartError(
                f"{self._name} died at its start, with exit code {self._process.returncode}; see "
                "its errors"
            ) from None

    async def beat(self) -> frozenset[str]:
        if self._hearing is not None:
            await asyncio.wait((self._hearing,), timeout=BEAT_SECONDS)
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                held: frozenset[str] = await self._ask(ASK_SESSIONS, "sessions")
                return held
        except TimeoutError:
            raise HostSilent(f"{self._name} is silent for {ANSWER_SECONDS:g} s") from None

    async def page(self) -> str:
        return str(await self._ask(ASK_METRICS, "metrics"))

    async def end(self) -> None:
        self._signal(signal.SIGTERM)
        if self._hearing is not None:
            await asyncio.wait((self._hearing,))

    async def kill(self) -> None:
        self._signal(signal.SIGKILL)
        if self._hearing is not None:
            await asyncio.wait((self._hearing,))

    async def _ask(self, question: bytes, kind: str) -> Any:
        """The field `kind` of its answer. Raises HostGone if it ends without one."""
        if self._hearing is None or self._hearing.done():
            raise self._gone()
        answer = self._asked.get(kind)
        if answer is None:
            answer = self._asked[kind] = asyncio.get_running_loop().create_future()
            stdin = None if self._process is None else self._process.stdin
            if stdin is not None and not stdin.is_closing():
                # Not awaited: at most one line of each kind can wait for a worker that does not
                # read.
                stdin.write(question)
        return await asyncio.shield(answer)

    async def _hear(self, process: asyncio.subprocess.Process) -> None:
        """Reads the worker's lines until it ends; an invalid line ends it."""
        try:
            while process.stdout is not None and (line := await process.stdout.readline()):
                self._answered(Said.model_validate_json(line))
        except (ValueError, KeyError) as error:
            log.error("worker killed", pid=process.pid, reason=f"it said {error}")  # noqa: TRY400
            self._signal(signal.SIGKILL)
        finally:
            await process.wait()
            for answer in self._asked.values():
                answer.set_exception(self._gone())
                answer.exception()  # Retrieved, so that asyncio does not log it.

    def _answered(self, said: Said) -> None:
        """Raises ValueError or KeyError for an answer without a question."""
        (kind,) = said.model_fields_set
        if said.closed is not None:
            self._closed(said.closed)
        elif said.failed is not None:
            self._asked.pop("ready").set_exception(StartError(said.failed))
        else:
            self._asked.pop(kind).set_result(getattr(said, kind))

    def _gone(self) -> HostGone:
        code = None if self._process is None else self._process.returncode
        return HostGone(f"{self._name} died, with exit code {code}")

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(number)
