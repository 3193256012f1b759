"""One sampler as the pool sees it, up or set aside, and its requests in flight.

A flight reports its chunks to the action, its speed to the router, its silences to the clock.

Invariant: whatever ends a flight, its server and the router count it no longer.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from engine.core.sampler.retry import Fault
from engine.core.sampler.routing import PREFILL, Router
from engine.core.sampler.token_action import Action
from engine.core.sampler.waiting import Cause, Waiting
from engine.core.sampler.wire.client import (
    SamplerClient,
    ServerInfo,
    ServerRefused,
    ServerUnreachable,
)
from engine.core.sampler.wire.events import Chunk, ChunkReader, WireError
from engine.core.sampler.wire.stream import QUIET_SECONDS
from toolwright.types import FinishReason, WeightVersion


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


class Moved(Exception):
    """The action leaves its server for a quicker one; no fault of anybody."""


class Flight:
    """A request of `action` on `server`.

    prompt: tokens that it was sent with. came, left: tokens that it brought, and is still expected
    to bring. movable: it may be left for another server. paused: a publish paused the server since
    the last chunk, so that the gap tells nothing of its speed.
    """

    def __init__(
        self,
        server: Server,
        router: Router,
        action: Action,
        waiting: Waiting,
        *,
        budget: int,
        vocab_size: int,
        movable: bool,
        can_have: Callable[[str, WeightVersion | None], bool],
    ) -> None:
        """can_have: `Fleet.can_have`."""
        self.waiting = waiting
        self.movable = movable
        self.paused = False
        self.prompt = 0
        self.came = 0
        self.left = router.expected(budget)
        self._server = server
        self._router = router
        self._action = action
        self._unread = 0.0
        self._can_have = can_have
        self._given = server.version
        self._weights = ""
        """Version of the last tokens."""
        reader = ChunkReader(
            incremental=server.incremental,
            vocab_size=vocab_size,
            max_new_tokens=budget,
            top_logprobs=action.request.top_logprobs,
        )
        self._stream = server.client.open_stream(
            reader=reader, on_chunk=self._on_chunk, on_quiet=self._on_quiet
        )

    async def fly(self, body: Mapping[str, Any]) -> FinishReason:
        """Its finish. What broke it: see `SamplerStream.read`; Moved after `leave`."""
        self.prompt = len(body["input_ids"])
        self._unread = self.prompt / PREFILL
        name = self._server.name
        self._server.board(self)
        self._router.begin(name, self.left)
        self._action.begin(time.monotonic_ns())
        try:
            await self._stream.read(body)
        finally:
            self._stream.let_go()
            self._router.end(name, self.left, time.monotonic())
            self._server.land(self)
        if self._action.finish is None:
            raise AssertionError("a stream ends with a finish reason or an error")
        return self._action.finish

    def leave(self) -> None:
        """The action goes on elsewhere."""
        self.movable = False
        self._stream.end(Moved())

    def _on_chunk(self, chunk: Chunk, read_ns: int) -> bool:
        if self.waiting:
            self.waiting.end(Cause.BROKEN, Cause.QUIET)
        fresh = len(chunk.token_ids)
        if fresh:
            if chunk.weight_version != self._weights:
                self._check_weights(chunk.weight_version)
            self._server.received += fresh
            if not self.paused:
                seconds = (read_ns - self._action.heard_ns) / 1e9
                self._router.measured(self._server.name, seconds, fresh + self._unread)
            self._unread = 0.0
            taken = min(self.left, fresh)
            self.left -= taken
            self.came += fresh
            self._router.took(self._server.name, taken)
            self.paused = self._server.paused
        return self._action.on_chunk(chunk, read_ns)

    def _check_weights(self, weights: str) -> None:
        """Raises ServerUnreachable for older weights of this run than the server was given.

        The action names weights of other runs.
        """
        if self._can_have(weights, None) and not self._can_have(weights, self._given):
            raise ServerUnreachable(
                f"it writes under weights {weights!r} and was given {self._given}: it was started "
                "anew"
            )
        self._weights = weights

    def _on_quiet(self, since: float) -> None:
        self.waiting.begin(Cause.QUIET, since)
        if not self._server.paused:
            self._router.measured(self._server.name, QUIET_SECONDS, 0)
