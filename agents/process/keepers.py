"""The keepers that this process started, and the orphans that it adopts.

Invariant: a process that an agent left, and that its keeper lost, is ended by `end_adopted`. It
takes no process of this one's own session: an agent's processes can never enter that.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import time
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import structlog

from agents.process.agent_process import AgentProcess

_PR_SET_CHILD_SUBREAPER = 36  # <linux/prctl.h>

ORPHANS_S = 2.0
"""Longest time for the end of all orphans at the end of the host, in seconds."""

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

    def end_orphans(self) -> int:
        """Ends the processes that dead keepers left, as far as they are this one's children.
        Returns their number: what they started comes next."""
        return 0 if self._starting else end_adopted(self._pids)

    def end_all_orphans(self) -> None:
        """Ends them and all that they started, in at most `ORPHANS_S`."""
        deadline = time.monotonic() + ORPHANS_S
        while self.end_orphans() and time.monotonic() < deadline:
            time.sleep(0.01)


def adopt_orphans(*, on: bool = True) -> None:
    """Makes this process the parent of all processes below it whose own parents die."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, int(on), 0, 0, 0)


def end_adopted(own: Collection[int]) -> int:
    """Ends processes that this one adopted; returns their number. own: children that it started."""
    session, ended = os.getsid(0), 0
    for task in Path("/proc/self/task").iterdir():
        with suppress(OSError):
            children = (task / "children").read_text(encoding="ascii").split()
            for pid in map(int, children):
                with suppress(OSError):
                    if pid in own or os.getsid(pid) == session:
                        continue
                    ended += 1
                    log.info("orphan_ended", pid=pid)
                    os.kill(pid, signal.SIGKILL)
                    os.waitpid(pid, os.WNOHANG)
    return ended
