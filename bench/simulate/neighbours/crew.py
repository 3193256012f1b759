"""Workers of the engine as simulated processes, and the network to their coordinator.

Invariants
- A worker dies with its coordinator, as the kernel has it in reality.
- What a dead worker sends does not arrive, neither at the coordinator nor at the neighbours.
- A stray worker counts as dead at the coordinator. It lives on among the neighbours, and its clock
  never ends its lease.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from contextlib import AsyncExitStack
from random import Random
from typing import Any, NoReturn, cast

from bench.history.events import AnyEvent, WorkerEnded
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

    def __init__(self, random: Random) -> None:
        super().__init__(random)
        self._parted: set[Owner] = set()

    def part(self, client: Owner) -> None:
        """From now on nothing passes between the coordinator and this worker."""
        self._parted.add(client)
        for stream in [one for one in self.streams if one.client is client]:
            stream.fail(ConnectionResetError("the worker was parted"))

    def reaches(self) -> Owner:
        if owner_here() in self._parted:
            raise ConnectionRefusedError("no way to the coordinator")
        return super().reaches()

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
        see: Callable[[AnyEvent], None],
    ) -> None:
        """seams: to samplers and tools, which are `servers` and behind `tools`. errors: gets those
        that nothing explains. see: writes the history."""
        self.network = CrewNetwork(random)
        self.seams = seams
        self.errors = errors
        self.see = see
        self.living: list[SimulatedProcess] = []
        self._tools = tools
        self.servers = servers

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
        for server in self.servers:
            server.client_died(owner, alone=alone)
        owner.die()

    async def kill(self, target: int) -> None:
        """Kills one of the living workers, if there is one."""
        if self.living:
            await self.living[target % len(self.living)].kill()

    def part(self, target: int) -> SimulatedProcess | None:
        """Makes one of the living workers a stray, if there is one. The caller must `bury` it."""
        if not self.living:
            return None
        process = self.living.pop(target % len(self.living))
        process.part()
        return process

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
        self._name = name
        self._owner = Owner(loop_here(), f"worker {name}")
        self._task: asyncio.Task[None] | None = None
        self._parted: asyncio.Future[None] = loop_here().create_future()
        """Done once it is a stray."""

    async def start(self) -> None:
        self._task = self._owner.spawn(self._work())
        self._crew.living.append(self)

    async def ended(self) -> str:
        assert self._task is not None
        either = {self._task, self._owner.gone, self._parted}
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if self._owner.alive and not self._parted.done():
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
            self._note_end()

    def _note_end(self) -> None:
        if not self._owner.stray:
            self._crew.see(WorkerEnded(at=loop_here().time(), worker=self._name))

    def part(self) -> None:
        """Makes it a stray."""
        for server in self._crew.servers:
            server.client_parted(self._owner)
        self._note_end()
        self._owner.stray = True
        self._crew.network.part(self._owner)
        self._parted.set_result(None)

    async def kill(self) -> bool:
        if not self._parted.done():
            await self.bury()
        return True

    async def bury(self) -> None:
        """Ends it, and returns when none of its tasks is left."""
        self.end()
        left = await self._owner.buried()
        self._crew.errors += [f"{self._owner.name}: a task did not end: {name}" for name in left]
        if self in self._crew.living:
            self._crew.living.remove(self)

    async def _work(self) -> None:
        crew = self._crew
        await SimulatedWorker(
            "coordinator",
            self._name,
            connect=crew.network.channel,
            seams=crew.seams,
            end=cast("Callable[[], NoReturn]", self._lease_ended),
        ).run()

    def _lease_ended(self) -> None:
        if not self._parted.done():
            self.end()
            raise asyncio.CancelledError


class SimulatedWorker(Worker):
    """As `engine work`, without a process around it."""

    def _watch(self) -> list[Coroutine[Any, Any, None]]:
        return []
