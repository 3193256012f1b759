"""A worker as a process of this machine: its start, its end, and the file of its output."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from asyncio.subprocess import DEVNULL, Process

from engine.core.tools.output_log import OutputLog
from engine.errors import StartupError

WORK = (sys.executable, "-P", "-m", "engine.cli", "work")


class WorkerProcess:
    """One process. `start` it once; `kill` it in any case."""

    def __init__(self, coordinator: str, name: str, output: OutputLog) -> None:
        """coordinator: address of the crew's service. name: of this life of the worker."""
        self._words = ("--coordinator", coordinator, "--name", name)
        self._output = output
        self._process: Process | None = None

    async def start(self) -> None:
        """Raises StartupError if the system starts no process."""
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
        """Why the process ended, when it has."""
        if self._process is None:
            return "it was not started"
        async with self._output.bounded():
            code = await self._process.wait()
        return f"exit code {code}: {self._output.last_words()} (see {self._output.path})"

    async def kill(self) -> None:
        """Returns when the process has ended. A stopped process ends without another step."""
        if self._process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()
        await self._process.wait()
