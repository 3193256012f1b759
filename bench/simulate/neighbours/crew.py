"""Workers of the engine as simulated processes, and the network to their coordinator.

Invariants
- A worker dies with its coordinator, as the kernel has it in reality.
- What a dead worker sends does not arrive, neither at the coordinator nor at the neighbours.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from contextlib import AsyncExitStack
from random import Random
from typing import Any, NoReturn

from bench.simulate.neighbours.channel import Network
from bench.simulate.neighbours.sampler import SimulatedServer
from bench.simulate.virtual.loop import Owner, loop_here, owner_here
from engine.core.tools.output_log import OutputLog
from engine.errors import EngineError
from engine.serving.crew.crew_service import CrewServicer
from engine.serving.seams import Seams
from engine.serving.worker.worker import Worker


class CrewNetwork(Network):
    """The way between a coordinator and its workers."""

    def saw(self, request: Any) -> None:
        """No call goes this way."""


class SimulatedCrew:
    """The workers of all lives of the engine: `Seams.crew`."""

    def __init__(
        self,
        random: Random,
        seams: Seams,
        *,
        tools: Network,
        servers: Sequence[SimulatedServer],
        errors: list[str],
    ) -> None:
        """seams: to samplers and tools, which are `servers` and behind `tools`. errors: gets those
        that nothing explains."""
        self.network = CrewNetwork(random)
        self.seams = seams
        self.errors = errors
        self.living: list[SimulatedProcess] = []
        self._tools = tools
        self._servers = servers

    async def serve(self, servicer: CrewServicer, _stack: AsyncExitStack) -> None:
        self.network.serve(owner_here(), servicer)

    def make(self, name: str, _output: OutputLog) -> SimulatedProcess:
        return SimulatedProcess(self, name)

    def ended(self, owner: Owner, *, alone: bool) -> None:
        """The process is gone; its tasks are not. alone: its coordinator lives."""
        self.network.client_died(owner)
        self._tools.client_died(owner)
        if not alone:
            owner.die()
        for server in self._servers:
            server.client_died(owner, alone=alone)
        owner.die()

    async def kill(self, target: int) -> None:
        """Kills one of the living workers, if there is one."""
        if self.living:
            await self.living[target % len(self.living)].kill()

    async def coordinator_died(self) -> None:
        """Ends all workers."""
        self.network.gone()
        for process in self.living:
            process.end(alone=False)
        for process in list(self.living):
            await process.kill()


class SimulatedProcess:
    """A worker's process."""

    def __init__(self, crew: SimulatedCrew, name: str) -> None:
        self.pid = 0
        self._crew = crew
        self._owner = Owner(loop_here(), f"worker {name}")
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        self._task = self._owner.spawn(self._work())
        self._crew.living.append(self)

    async def ended(self) -> str:
        assert self._task is not None
        await asyncio.wait({self._task, self._owner.gone}, return_when=asyncio.FIRST_COMPLETED)
        if self._owner.alive:
            self._crew.errors += [
                f"a task outlived {self._owner.name}: {name}" for name in self._owner.names()
            ]
            error = None if self._task.cancelled() else self._task.exception()
            if error is not None and not isinstance(error, EngineError):
                self._crew.errors.append(f"{self._owner.name} ended: {error!r}")
        return "the worker ended"

    def end(self, *, alone: bool = True) -> None:
        """From now on nothing that it does has an effect."""
        if self._owner.alive:
            self._crew.ended(self._owner, alone=alone)

    async def kill(self) -> bool:
        self.end()
        left = await self._owner.buried()
        self._crew.errors += [f"{self._owner.name}: a task did not end: {name}" for name in left]
        if self in self._crew.living:
            self._crew.living.remove(self)
        return True

    async def _work(self) -> None:
        crew = self._crew
        await SimulatedWorker(
            "coordinator",
            self._owner.name.partition(" ")[2],
            connect=crew.network.channel,
            seams=crew.seams,
            end=self._lease_ended,
        ).run()

    def _lease_ended(self) -> NoReturn:
        self._crew.ended(self._owner, alone=True)
        raise asyncio.CancelledError


class SimulatedWorker(Worker):
    """As `engine work`, without a process around it."""

    def _watch(self) -> list[Coroutine[Any, Any, None]]:
        return []
