"""An agent's process with its keeper and its bounded output.

The output has a pipe of its own: asyncio waits for a process until its pipes are closed, and what
an agent left may hold this one open for ever.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from asyncio.subprocess import PIPE, STDOUT, Process
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from agents.process import keeper
from agents.process.output import BoundedOutput

LOST_S = keeper.GRACE_S + keeper.LEAVES_S + 1.0
"""Longest time that a keeper gets to end its agent, in seconds."""
EOF_S = 1.0
"""Longest wait for the end of the output after the keeper's end, in seconds."""


class AgentProcess:
    """A started agent. `wait` returns its exit code after its last process has ended."""

    def __init__(self, process: Process, written: asyncio.StreamReader) -> None:
        self._process = process
        self._written = written
        self.output = BoundedOutput()
        self._reading = asyncio.create_task(self._read())

    @classmethod
    async def start(
        cls,
        words: Sequence[str],
        folder: Path | str,
        environment: Mapping[str, str],
        stdin: int | None = None,
    ) -> AgentProcess:
        """folder: in which it begins. stdin: a descriptor that becomes its input; None = it has no
        input. Raises OSError."""
        given = {"argv": list(words), "folder": str(folder), "stdin": stdin}
        ours, theirs = os.pipe()
        written = asyncio.StreamReader()
        reading, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(written), os.fdopen(ours, "rb", 0)
        )
        try:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-I", "-S", "-B", keeper.__file__, json.dumps(given)),
                stdin=PIPE,
                stdout=theirs,
                stderr=STDOUT,
                env=environment,
                start_new_session=True,
                pass_fds=() if stdin is None else (stdin,),
            )
        except BaseException:
            reading.close()
            raise
        finally:
            os.close(theirs)
        agent = cls(process, written)
        agent._reading.add_done_callback(lambda _: reading.close())
        return agent

    @property
    def pid(self) -> int:
        """Process id of the keeper."""
        return self._process.pid

    async def wait(self) -> int:
        """The exit code; 128 + N for signal N. Cancellation leaves the agent alive."""
        code = await self._process.wait()
        with suppress(TimeoutError):
            async with asyncio.timeout(EOF_S):
                await asyncio.shield(self._reading)
        return code if code >= 0 else 128 - code

    async def end(self) -> None:
        """Ends the agent and all its processes: SIGTERM, then SIGKILL."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            async with asyncio.timeout(LOST_S):
                await self._process.wait()
        except TimeoutError:
            # The kernel ends the agent with its keeper; the host adopts what is left.
            with suppress(ProcessLookupError):
                os.kill(self._process.pid, signal.SIGKILL)
            await self._process.wait()

    def close(self) -> None:
        """Stops reading the output."""
        self._reading.cancel()

    async def _read(self) -> None:
        while data := await self._written.read(1 << 16):
            self.output.add(data)
