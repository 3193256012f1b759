"""One life of the real engine in the simulated world: started, stopped or killed.

The engine is `engine.serving.serve.Engine` with other seams. What a process has beside it is left
out: the gRPC server (the learner asks the servicers), signals, progress, metrics over HTTP.
"""

from __future__ import annotations

import asyncio
import io
from collections.abc import Coroutine
from contextlib import AsyncExitStack
from typing import Any, TypeVar, cast

from bench.simulate.neighbours.ingress_channel import IngressNetwork
from bench.simulate.virtual.loop import Gone, Owner, loop_here, owner_here
from engine.config import EngineTable
from engine.serving.seams import Seams
from engine.serving.serve import Engine
from engine.serving.service import PolicyServicer, RolloutServicer
from engine.serving.telemetry.progress import EngineProgress
from toolwright.recipe import Recipe
from toolwright.rpc.server import Server

Answer = TypeVar("Answer")


class SimulatedEngine(Engine):
    """As `engine serve`, without a process around it."""

    def __init__(
        self,
        recipe: Recipe,
        table: EngineTable,
        seams: Seams,
        ingress: IngressNetwork | None = None,
        workers: int = 0,
    ) -> None:
        """ingress: the way of outside agents to this engine. workers: those that it starts."""
        super().__init__(recipe, table, workers=workers, seams=seams)
        self._ingress = ingress
        self._progress = EngineProgress(recipe.steps, out=io.StringIO())
        self.servicers: tuple[RolloutServicer, PolicyServicer] | None = None
        """From the moment at which the engine would listen."""
        self.hung_up = asyncio.Event()
        """It listens no more."""

    def bound(self) -> tuple[int, int, int]:
        """(newest step, accepted, running trajectories): the numbers of the staleness bound."""
        lane = self._lane
        return lane.step, lane.counts.accepted, lane.admitted

    @property
    def places(self) -> int:
        return self._lane.running

    @property
    def flights(self) -> int:
        """Requests that the engine counts at its samplers."""
        return sum(len(server.flights) for server in self._pool.servers)

    def _on_signals(self) -> None:
        pass

    async def _listen(self, stack: AsyncExitStack) -> Server:
        self.servicers = self.rollout_servicer(), self.policy_servicer()
        stack.callback(self.hung_up.set)  # as the server's stop: before the journal is closed
        if self._ingress is not None:
            self._ingress.serve(owner_here(), self.ingress_servicer())
            stack.push_async_callback(self._ingress.hang_up)
        return cast("Server", None)

    def _watch(self, server: Server) -> list[Coroutine[Any, Any, None]]:
        return [] if self._workers is None else [self._workers.run()]


class EngineLife:
    """From its making on it runs, until `stop` or `kill`."""

    def __init__(
        self,
        number: int,
        recipe: Recipe,
        table: EngineTable,
        seams: Seams,
        ingress: IngressNetwork | None = None,
        workers: int = 0,
    ) -> None:
        self.number = number
        self.buried = asyncio.Event()
        """Nothing of it is left."""
        self.owner = Owner(loop_here(), f"engine {number}")
        self.engine = SimulatedEngine(recipe, table, seams, ingress, workers)
        self.task = self.owner.spawn(self.engine.run())

    @property
    def serves(self) -> bool:
        engine = self.engine
        return self.owner.alive and engine.servicers is not None and not engine.hung_up.is_set()

    async def ask(self, work: Coroutine[Any, Any, Answer]) -> Answer:
        """What an RPC's handler returns or raises. Raises Gone where the engine dies, or listens no
        more, before that."""
        rpc = asyncio.ensure_future(self.owner.ask(work))
        hanging_up = asyncio.ensure_future(self.engine.hung_up.wait())
        try:
            await asyncio.wait([rpc, hanging_up], return_when=asyncio.FIRST_COMPLETED)
            if not rpc.done():
                raise Gone(self.owner.name)
            return rpc.result()
        finally:
            rpc.cancel()
            hanging_up.cancel()
