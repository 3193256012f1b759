"""The sampler pool of a worker: it samples on the servers that the coordinator calls up.

Invariants
- The pool brings no server up. `follow_state` alone sets a server's state.
- A server that broke off is set aside here at once, and reported. The coordinator's next state says
  whether it is up.
"""

from __future__ import annotations

import asyncio
from array import array
from collections.abc import Callable, Mapping
from typing import Any

from engine.core.sampler.pool import SamplerPool
from engine.core.sampler.server import Server
from engine.core.sampler.token_action import TokenAction
from engine.serving.crew.sampler_state import info_of
from toolwright.crew.v1 import crew_pb2 as pb
from toolwright.types import FinishReason, WeightVersion


class FollowingPool(SamplerPool):
    """A pool that follows the coordinator's."""

    on_fault: Callable[[str, str], None]
    """Reports a server that broke off, by its name and the reason. Set before the first request."""
    before_request: Callable[[], None]
    """Called before each request; it may forbid the request by an error."""

    async def open(self) -> None:
        """Lists the endpoints of the recipe; all are set aside until `follow_state`."""
        for url in self._endpoints:
            self._add(url)

    async def keep_alive(self) -> None:
        """Moves actions from slow servers, and logs while none is up. Runs until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._move_from_slow())
            tasks.create_task(self._say())

    def name_requests(self, life: str) -> None:
        """Sets the word that begins the ids of all requests: 16 characters."""
        self._boot = life

    def follow_state(self, state: pb.Samplers) -> None:
        """Takes the coordinator's state over."""
        self.known.clear()  # actions in flight hold the same mapping
        self.known.update((name, WeightVersion.parse(name)) for name in state.versions)
        for one in state.samplers:
            server = self.named(one.name)
            server.info = info_of(one)
            server.version = WeightVersion.parse(one.version) if one.version else None
            if one.paused and not server.paused:
                server.pause()
            elif server.paused and not one.paused:
                server.resume()
            if one.up and not server.up.is_set():
                self.mark_up(server)
            elif not one.up:
                super().mark_down(server, one.why, planned=True)

    def follow_loads(self, loads: Mapping[str, pb.Load]) -> None:
        """Takes over what other workers have on each server."""
        for name, load in self.router.loads.items():
            other = loads[name] if name in loads else pb.Load()
            load.others_in_flight, load.others_queued = other.in_flight, other.queued

    def mark_down(self, server: Server, why: str, *, planned: bool = False) -> None:
        super().mark_down(server, why, planned=planned)
        self.on_fault(server.name, why)

    async def _request(
        self, server: Server, action: TokenAction, pending: Any, prompt: array[int]
    ) -> FinishReason:
        self.before_request()
        return await super()._request(server, action, pending, prompt)
