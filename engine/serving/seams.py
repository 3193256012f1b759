"""The engine's replaceable edges: how it reaches its neighbours, and what drives its journal.

The simulator (`bench/simulate`) replaces each of them; a real engine has the defaults.
"""

from __future__ import annotations

from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Protocol

from engine.core.sampler.fleet import Connect as ConnectSampler
from engine.core.tools.link.service_link import Connect as ConnectTools
from engine.core.tools.output_log import OutputLog
from engine.serving.crew.crew_service import CrewServicer
from engine.serving.crew.processes.worker_process import Process
from engine.serving.journal.writer import Drive


class WorkersSeam(Protocol):
    """How an engine has workers."""

    async def serve(self, servicer: CrewServicer, stack: AsyncExitStack) -> None:
        """Lets the workers reach the engine until the stack is closed."""

    def make(self, name: str, output: OutputLog) -> Process:
        """A worker's process, which is not started."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Seams:
    """The replaceable edges of one engine."""

    samplers: ConnectSampler | None = None
    """None: HTTP."""
    tools: ConnectTools | None = None
    """None: gRPC."""
    journal: Drive | None = None
    """None: a thread."""
    crew: WorkersSeam | None = None
    """None: `LocalWorkers`."""
