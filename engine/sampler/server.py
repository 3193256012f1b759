"""One sampler as the pool sees it: up or set aside, what it has in flight, how often it failed."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING

from engine.sampler.retry import Fault
from engine.sampler.waiting import Cause
from engine.sampler.wire.client import (
    SamplerClient,
    ServerInfo,
    ServerRefused,
    ServerUnreachable,
)
from engine.sampler.wire.events import WireError
from toolwright.types import WeightVersion

if TYPE_CHECKING:
    from engine.sampler.flight import Flight


class Server:
    """One sampler. `why` says what set it aside."""

    def __init__(self, client: SamplerClient) -> None:
        self.client = client
        self.name = client.url
        self.up = asyncio.Event()
        self.why = "it has no weights of this run yet"
        self.info: ServerInfo | None = None
        self.flights: set[Flight] = set()
        self.faults: Counter[Fault] = Counter()
        self.received = 0
        """Tokens of all its streams."""
        self.version: WeightVersion | None = None
        """Version of the run that it was given last."""
        self.control = asyncio.Lock()
        """Held while its weights change."""
        self._paused_since: float | None = None
        self._look: asyncio.Future[str] | None = None

    @property
    def incremental(self) -> bool:
        return self.info is not None and self.info.incremental

    @property
    def reads_text(self) -> bool:
        """The server has a tokenizer. One without refuses stop texts, and then only the engine
        finds them."""
        return self.info is not None and self.info.reads_text

    @property
    def paused(self) -> bool:
        return self._paused_since is not None

    def pause(self) -> None:
        """A publish pauses the server: the clocks of its trajectories stand still."""
        self._paused_since = asyncio.get_running_loop().time()
        for flight in self.flights:
            flight.paused = True
            flight.waiting.begin(Cause.PAUSED, self._paused_since)

    def resume(self) -> None:
        self._paused_since = None
        for flight in self.flights:
            flight.waiting.end(Cause.PAUSED)

    def board(self, flight: Flight) -> None:
        """A request goes to the server."""
        self.flights.add(flight)
        if self._paused_since is not None:
            flight.paused = True
            flight.waiting.begin(Cause.PAUSED, asyncio.get_running_loop().time())

    def land(self, flight: Flight) -> None:
        """The request is over."""
        self.flights.discard(flight)
        flight.waiting.end(Cause.PAUSED, Cause.QUIET)

    async def weights(self) -> str:
        """The version that it says it has, "" when it does not answer. Streams that broke together
        ask once."""
        if self._look is None:
            self._look = asyncio.ensure_future(self._ask())
            self._look.add_done_callback(self._forget_look)
        return await asyncio.shield(self._look)

    async def _ask(self) -> str:
        try:
            return await self.client.weight_version()
        except (ServerUnreachable, ServerRefused, WireError):
            return ""

    def _forget_look(self, _look: object) -> None:
        self._look = None
