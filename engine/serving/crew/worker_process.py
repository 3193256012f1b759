"""A worker as a process of this machine: its start, its end, and the file of its output."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from asyncio.subprocess import DEVNULL
from asyncio.subprocess import Process as Child
from collections.abc import Callable
from typing import Protocol

from engine.core.tools.output_log import OutputLog
from engine.errors import StartupError

WORK = (sys.executable, "-P", "-m", "engine.cli", "work")


class Process(Protocol):
    """The process of a worker: `start` it once; `kill` it in any case."""

    @property
    def pid(self) -> int: ...

    async def start(self) -> None:
        """Raises StartupError if the system starts no process."""

    async def ended(self) -> str:
        """Why the process ended, when it has."""
        ...

    async def kill(self) -> None:
        """Returns when the process has ended. A stopped process ends without another step."""


MakeProcess = Callable[[str, OutputLog], Process]
"""(name of this life of the worker, file of its output)."""


class WorkerProcess:
    """A `Process` of this machine."""

    def __init__(self, coordinator: str, name: str, output: OutputLog) -> None:
        """coordinator: address of the crew's service. name: of this life of the worker."""
        self._words = (
            *("--coordinator", coordinator),
            *("--name", name),
            *("--parent", str(os.getpid())),
        )
        self._output = output
        self._process: Child | None = None

    async def start(self) -> None:
        with self._output.writer() as output:
            self._output.begin()
            try:
                self._process = await asyncio.create_subprocess_exec(
                    *WORK,
                    *self._words,
                    stdin=DEVNULL,
                    stdout=output,
                    stderr=output,
                    start_new_session=True,  # Ctrl-C must reach only the engine
                )
            except OSError as error:
                raise StartupError(f"a worker could not be started: {error}") from error

    @property
    def pid(self) -> int:
        return 0 if self._process is None else self._process.pid

    async def ended(self) -> str:
        if self._process is None:
            return "it was not started"
        async with self._output.bounded():
            code = await self._process.wait()
        return f"exit code {code}: {self._output.last_words()} (see {self._output.path})"

    async def kill(self) -> None:
        if self._process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()
        await self._process.wait()
