"""A tool service that the engine starts itself: a recipe's `[tools.NAME] serve = [...]`.

Invariants
- It is a process of its own, and clients use it like any other service: over gRPC, on a Unix socket
  in a folder that no other account can enter.
- It does not outlive the engine, however that ends. Its standard input is a pipe that the engine
  holds, and it drains when that pipe ends.
- If it ends by itself, it is started again at the same address; its sessions are lost. If it does
  not start again, the engine ends.

`toolsvc serve` defines the meaning of the words.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import time
from asyncio.subprocess import PIPE, Process
from io import RawIOBase
from pathlib import Path
from tempfile import TemporaryDirectory

import structlog

from engine.core.tools.output_log import OutputLog
from engine.errors import StartupError
from toolwright.process.sockets import folder_for_sockets
from toolwright.recipe import Tool
from toolwright.rpc.channel import backoff
from toolwright.tracing.settings import ENDPOINT

SERVE = (sys.executable, "-P", "-m", "toolsvc.cli", "serve")
START_SECONDS = 600.0
"""Longest start: a large search index takes minutes to load."""
END_SECONDS = 20.0
"""Time before a stopped service is killed. It gives its calls ten seconds, then closes sessions."""
LAST_WORDS_SECONDS = 1.0
"""Time to read the rest of the pipe after the process has ended."""
STEADY_SECONDS = 60.0
"""A process that lived that long is restarted at once."""
_PIECE = 1 << 16
"""Bytes of its standard output that are read at once."""

log = structlog.get_logger("tools")


class ToolProcess:
    """One process. Call `start`, then `keep_running` while it is needed, and `stop` in any case."""

    def __init__(
        self, name: str, table: Tool, *, folder: Path, output: Path, traces: str = ""
    ) -> None:
        """name: of the table. folder: base of relative paths in its words. output: file to which
        its output is appended. traces: its collector; "" = the one that the environment names."""
        self._environment = {**os.environ, ENDPOINT: traces} if traces else None
        self._name = name
        self._table = table
        self._folder = folder
        self._output_log = OutputLog(output)
        self._private = TemporaryDirectory(prefix="toolwright-", dir=folder_for_sockets())
        self._process: Process | None = None
        self._serving = asyncio.Event()
        self.restarts = 0
        """Starts after the first."""
        self.address = f"unix:{self._private.name}/tools.sock"

    async def start(self) -> None:
        """Returns when it serves. Raises StartupError with the process's own reason if it does
        not."""
        with self._output_log.writer() as output:
            self._output_log.begin()
            self._process = process = await asyncio.create_subprocess_exec(
                *SERVE,
                *self._table.words,
                *("--until-eof", "--listen", self.address),
                stdin=PIPE,
                stdout=PIPE,
                stderr=output,
                cwd=self._folder,
                env=self._environment,
                start_new_session=True,  # Ctrl-C must reach only the engine
            )
            try:
                async with self._output_log.bounded(), asyncio.timeout(START_SECONDS):
                    if not await self._serves(_stdout(process), output):
                        code = await process.wait()
                        raise self._refused(self._last_words() or f"it ended with exit code {code}")
            except TimeoutError:
                raise self._refused(f"it does not serve after {START_SECONDS:g} s") from None
        self._serving.set()
        log.info("tool_service_started", service=self._name, pid=process.pid)

    async def serving(self) -> None:
        """Returns when it serves: at once, or after `keep_running` has restarted it. The wait is
        bounded: a service that does not serve within `START_SECONDS` ends the engine."""
        await self._serving.wait()

    async def keep_running(self) -> None:
        """Restarts the process whenever it has ended. Runs until cancelled. Raises StartupError if
        it does not start."""
        failures = 0
        while True:
            began = time.monotonic()
            code = await self._ended()
            log.error("tool_service_ended", service=self._name, code=code)
            failures = 0 if time.monotonic() - began > STEADY_SECONDS else failures + 1
            await asyncio.sleep(backoff(failures) if failures else 0.0)
            await self.start()
            self.restarts += 1

    async def stop(self) -> None:
        """Lets the process drain, and kills it if that takes too long."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.terminate()
            try:
                async with asyncio.timeout(END_SECONDS):
                    await self._ended()
            except TimeoutError:
                log.warning("tool_service_killed", service=self._name, pid=self._process.pid)
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(self._process.pid, signal.SIGKILL)
                await self._ended()
        self._private.cleanup()

    async def _ended(self) -> int:
        """Exit code of the process, when it has ended. Its output until then goes to the file, so a
        tool that prints never blocks."""
        process = self._process
        if process is None:
            raise AssertionError("the process was not started")
        async with self._output_log.bounded(), asyncio.TaskGroup() as group:
            copying = group.create_task(self._copy(_stdout(process)))
            code = await process.wait()
            self._serving.clear()
            # The pipe may have other holders, which may live longer.
            await asyncio.wait({copying}, timeout=LAST_WORDS_SECONDS)
            copying.cancel()
        return code

    async def _copy(self, stdout: asyncio.StreamReader) -> None:
        with self._output_log.writer() as output:
            while said := await stdout.read(_PIECE):
                output.write(said)

    async def _serves(self, stdout: asyncio.StreamReader, output: RawIOBase) -> bool:
        """Returns True when the process reports that it serves, False at its end. Files with tools
        may print before that, and lines of any length."""
        word = self.address.encode()
        seen = b""
        while said := await stdout.read(_PIECE):
            output.write(said)
            seen = seen[-len(word) :] + said
            if word in seen:
                return True
        return False

    def _last_words(self) -> str:
        """The last line of its output, or the end of a long one; "" without a line."""
        return self._output_log.last_words().removeprefix("toolsvc: ")

    def _refused(self, why: str) -> StartupError:
        return StartupError(
            f"tools.{self._name}: {self._table.where}: {why} (see {self._output_log.path})"
        )


def _stdout(process: Process) -> asyncio.StreamReader:
    if process.stdout is None:
        raise AssertionError("the process has no output pipe")
    return process.stdout
