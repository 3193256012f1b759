"""One sampler as the pool sees it, up or set aside, and its requests in flight.

A request in flight reports its chunks to the action, its speed to the router, and its silences to
the clock.

Invariant: however a request ends, its server and the router no longer count it.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from engine.core.sampler.retry import Fault
from engine.core.sampler.routing import PREFILL, Router
from engine.core.sampler.token_action import TokenAction
from engine.core.sampler.waiting import WaitCause, Waiting
from engine.core.sampler.wire.client import (
    Load,
    SamplerClient,
    ServerInfo,
    ServerRefused,
    ServerUnreachable,
)
from engine.core.sampler.wire.events import Chunk, ChunkReader, WireError
from engine.core.sampler.wire.stream import QUIET_SECONDS
from engine.core.time_limit import loop_now
from toolwright.types import FinishReason, WeightVersion


class Server:
    """One sampler. `why` says why it is set aside."""

    def __init__(self, client: SamplerClient) -> None:
        self.client = client
        self.name = client.url
        self.up = asyncio.Event()
        self.why = "it has no weights of this run yet"
        self.info: ServerInfo | None = None
        self.load: Load | None = None
        """Its last reported load since it came up; None if it has reported none."""
        self.load_answered = False
        """Whether it has answered a look since it came up, with its load or a refusal."""
        self.flights: dict[RequestInFlight, None] = {}
        """Requests in flight, in the order of their begin."""
        self.faults: Counter[Fault] = Counter()
        self.received = 0
        """Tokens received over all its streams."""
        self.version: WeightVersion | None = None
        """The run's version that it got last."""
        self.adapter: str | None = None
        """Adapter of its version, which new requests name; "" = the frozen policy alone, None = the
        run publishes whole weights."""
        self.adapters: dict[str, None] = {}
        """Names of this run's adapters that it has, oldest first."""
        self.control = asyncio.Lock()
        """Held while its weights change."""
        self.changed: Callable[[], None] = lambda: None
        """Called after the begin and the end of a pause."""
        self._paused_since: float | None = None
        self._look: asyncio.Future[str] | None = None

    @property
    def incremental(self) -> bool:
        return self.info is not None and self.info.incremental

    @property
    def reads_text(self) -> bool:
        """Whether the server has a tokenizer. A server without one refuses stop texts; then only
        the engine finds them."""
        return self.info is not None and self.info.reads_text

    @property
    def paused(self) -> bool:
        return self._paused_since is not None

    def pause(self) -> None:
        """Marks a pause by a publish: the clocks of the server's trajectories stand still."""
        self._paused_since = loop_now()
        for flight in self.flights:
            flight.paused = True
            flight.waiting.begin(WaitCause.PAUSED, self._paused_since)
        self.changed()

    def resume(self) -> None:
        self._paused_since = None
        for flight in self.flights:
            flight.waiting.end(WaitCause.PAUSED)
        self.changed()

    def begin_request(self, flight: RequestInFlight) -> None:
        """Counts a request that goes to the server."""
        self.flights[flight] = None
        if self._paused_since is not None:
            flight.paused = True
            flight.waiting.begin(WaitCause.PAUSED, loop_now())

    def end_request(self, flight: RequestInFlight) -> None:
        """Counts a request that is over."""
        self.flights.pop(flight, None)
        flight.waiting.end(WaitCause.PAUSED, WaitCause.QUIET)

    async def weights(self) -> str:
        """The weight version that the server reports, "" if it does not answer. Streams that broke
        together query it once."""
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


class ActionMoved(Exception):
    """The action leaves its server for a quicker one; no error occurred."""


class RequestInFlight:
    """A request of `action` on `server`.

    prompt: number of tokens that were sent. came: tokens received so far. left: tokens that will
    likely come. movable: whether another server may take over. paused: a publish paused the server
    since the last chunk, so the gap does not measure its speed. adapter: as `Server.adapter`;
    unless it is None, all tokens are of the version that the server had at first.
    """

    def __init__(
        self,
        server: Server,
        router: Router,
        action: TokenAction,
        waiting: Waiting,
        *,
        budget: int,
        vocab_size: int,
        movable: bool,
        adapter: str | None = None,
        can_have: Callable[[str, WeightVersion | None], bool],
    ) -> None:
        """can_have: `Fleet.can_have`."""
        self.waiting = waiting
        self.movable = movable
        self.adapter = adapter
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
        """Version that the server reported with the last tokens."""
        reader = ChunkReader(
            incremental=server.incremental,
            vocab_size=vocab_size,
            max_new_tokens=budget,
            top_logprobs=action.request.top_logprobs,
        )
        self._stream = server.client.open_stream(
            reader=reader, on_chunk=self._on_chunk, on_quiet=self._on_quiet
        )

    async def run(self, body: Mapping[str, Any]) -> FinishReason:
        """Sends the request and returns its finish. Raises the errors of `SamplerStream.read`, and
        ActionMoved after `leave`."""
        self.prompt = len(body["input_ids"])
        self._unread = self.prompt / PREFILL
        name = self._server.name
        self._server.begin_request(self)
        self._router.begin(name, self.left)
        self._action.begin(time.monotonic_ns())
        try:
            await self._stream.read(body)
        finally:
            self._stream.let_go()
            self._router.end(name, self.left, time.monotonic())
            self._server.end_request(self)
        if self._action.finish is None:
            raise AssertionError("a stream ends with a finish reason or an error")
        return self._action.finish

    def leave(self) -> None:
        """Ends the request, because the action goes on elsewhere."""
        self.movable = False
        self._stream.end(ActionMoved())

    def _on_chunk(self, chunk: Chunk, read_ns: int) -> bool:
        if self.waiting:
            self.waiting.end(WaitCause.BROKEN, WaitCause.QUIET)
        reported = chunk.weight_version
        if self.adapter is not None and self._can_have(reported, None):
            own = str(self._given)
            chunk = msgspec.structs.replace(chunk, weight_version=own, weight_spans=())
        fresh = len(chunk.token_ids)
        if fresh:
            if reported != self._weights:
                self._check_weights(reported)
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
        """Raises ServerUnreachable for older weights of this run than the server got.

        The action names weights of other runs.
        """
        if self._can_have(weights, None) and not self._can_have(weights, self._given):
            raise ServerUnreachable(
                f"it writes under weights {weights!r} and was given {self._given}: it was started "
                "anew"
            )
        self._weights = weights

    def _on_quiet(self, since: float) -> None:
        self.waiting.begin(WaitCause.QUIET, since)
        if not self._server.paused:
            self._router.measured(self._server.name, QUIET_SECONDS, 0)
