"""One request in flight: its chunks to the action, its speed to the router, its silences to the
clock.

Invariant: whatever ends it, its server and the router count it no longer.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from engine.sampler.action import Action
from engine.sampler.routing import PREFILL, Router
from engine.sampler.server import Server
from engine.sampler.waiting import Cause, Waiting
from engine.sampler.wire.client import ServerUnreachable
from engine.sampler.wire.events import Chunk, ChunkReader
from engine.sampler.wire.stream import QUIET_SECONDS
from toolwright.types import FinishReason, WeightVersion


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
        """Those of the last tokens."""
        reader = ChunkReader(
            incremental=server.incremental,
            vocab_size=vocab_size,
            max_new_tokens=budget,
            top_logprobs=action.top_logprobs,
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
        """ServerUnreachable for older weights of this run than the server was given. The action
        names weights of other runs."""
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
