"""The keepers that this process started, and the orphans that it adopts.

Invariant: a process that an agent left, and that its keeper lost, is ended by `end_adopted`. It
takes no process of this one's own session: an agent's processes can never enter that.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import structlog

from agents.process.agent_process import AgentProcess

_PR_SET_CHILD_SUBREAPER = 36  # <linux/prctl.h>

log = structlog.get_logger("agents")


class Keepers:
    """Starts agents below keepers."""

    def __init__(self) -> None:
        self._pids = set[int]()
        self._starting = 0

    @asynccontextmanager
    async def started(
        self,
        words: Sequence[str],
        folder: Path | str,
        environment: Mapping[str, str],
        stdin: int | None = None,
    ) -> AsyncIterator[AgentProcess]:
        """An agent, which an error or a cancellation of the block ends. The arguments are those of
        `AgentProcess.start`. Raises OSError."""
        self._starting += 1
        try:
            agent = await AgentProcess.start(words, folder, environment, stdin)
            self._pids.add(agent.pid)
        finally:
            self._starting -= 1
        try:
            yield agent
        except BaseException:
            ending = asyncio.create_task(agent.end())
            while not ending.done():  # a second cancellation must not leave processes
                with suppress(asyncio.CancelledError):
                    await asyncio.wait({ending})
            raise
        finally:
            agent.close()
            self._pids.discard(agent.pid)

    def end_orphans(self) -> None:
        """Ends the processes that dead keepers left."""
        if not self._starting:
            end_adopted(self._pids)


def adopt_orphans(*, on: bool = True) -> None:
    """Makes this process the parent of all processes below it whose own parents die."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, int(on), 0, 0, 0)


def end_adopted(own: Collection[int]) -> None:
    """Ends processes that this one adopted. own: children that it started."""
    session = os.getsid(0)
    for task in Path("/proc/self/task").iterdir():
        with suppress(OSError):
            children = (task / "children").read_text(encoding="ascii").split()
            for pid in map(int, children):
                with suppress(OSError):
                    if pid in own or os.getsid(pid) == session:
                        continue
                    log.info("orphan_ended", pid=pid)
                    os.kill(pid, signal.SIGKILL)
                    os.waitpid(pid, os.WNOHANG)
