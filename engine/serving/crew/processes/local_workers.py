"""Workers as processes of this machine: their start, their end, and the files of their output."""

from __future__ import annotations

import asyncio
import contextlib
from asyncio.subprocess import DEVNULL
from asyncio.subprocess import Process as Child
from contextlib import AsyncExitStack
from tempfile import TemporaryDirectory

from engine.core.tools.output_log import OutputLog
from engine.errors import StartupError
from engine.serving.crew.crew_service import CrewServicer, crew_server
from engine.serving.crew.processes.worker_process import work_command
from toolwright.process.sockets import folder_for_sockets


class LocalWorkers:
    """How an engine has workers on its own machine: on a Unix socket in a private folder."""

    def __init__(self) -> None:
        self._address = ""

    async def serve(self, servicer: CrewServicer, stack: AsyncExitStack) -> None:
        folder = stack.enter_context(
            TemporaryDirectory(prefix="toolwright-", dir=folder_for_sockets())
        )
        self._address = f"unix:{folder}/crew.sock"
        server = crew_server(self._address, servicer)
        await server.start()
        stack.push_async_callback(server.stop, 1.0)

    def make(self, name: str, output: OutputLog) -> WorkerProcess:
        return WorkerProcess(work_command(self._address, name), output)


class WorkerProcess:
    """A `Process` of this machine."""

    def __init__(self, command: tuple[str, ...], output: OutputLog) -> None:
        self._command = command
        self._output = output
        self._process: Child | None = None

    async def start(self) -> None:
        with self._output.writer() as output:
            self._output.begin()
            try:
                self._process = await asyncio.create_subprocess_exec(
                    *self._command,
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

    async def kill(self) -> bool:
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
            await self._process.wait()
        return True
