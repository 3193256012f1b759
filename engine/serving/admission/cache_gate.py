"""The sampler of training under a `CacheLimit`: an action begins when its trajectory may go on.

The gate tells the limit what happens, looks at the servers every few seconds, and sets the number
of places of the train lane. That number takes a sum over all trajectories, so it follows actions at
most ten times a second. Evaluations use the pool without the gate.

Invariants
- A trajectory's clock stands still while it waits here.
- A waiting action that is cancelled leaves nothing behind.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from engine.core.sampler.policy_sampler import GenerateRequest, PolicySampler
from engine.core.sampler.waiting import WaitCause, Waiting
from engine.core.sampler.wire.client import Load
from engine.core.time_limit import loop_now
from engine.serving.admission.cache_limit import CacheLimit, Turn
from engine.serving.admission.places import Places
from engine.types import Generated

LOOK_S = 2.0
"""Interval between looks at the servers: a look takes a few ms for each server."""
LOOKS = 5
"""Looks in one step of the limit."""
RESIZE_S = 0.1
"""Longest time from an action, or an end, to the new number of places."""


class CacheGate:
    """A `PolicySampler` that makes actions wait. Other calls go to the pool."""

    def __init__(
        self,
        pool: PolicySampler,
        limit: CacheLimit,
        places: Places,
        loads: Callable[[], Awaitable[Sequence[Load]]],
    ) -> None:
        """places: of the train lane. loads: as `Fleet.look`."""
        self.limit = limit
        self.vocab_size = pool.vocab_size
        self._pool = pool
        self._places = places
        self._loads = loads
        self._waiting: dict[asyncio.Future[None], str] = {}
        """Actions that wait for the budget, and their trajectories."""
        self._resizing: asyncio.TimerHandle | None = None
        self._apply()

    @property
    def waiting(self) -> int:
        """Actions that wait for the budget."""
        return len(self._waiting)

    async def generate(self, request: GenerateRequest) -> Generated:
        """As the pool, after the wait for the budget."""
        key = request.key
        self.limit.asks(key, len(request.token_ids))
        await self._let_in(request)
        generated = await self._pool.generate(request)
        versions = {str(version) for version, _ in generated.versions}
        self.limit.acted(
            key,
            Turn(
                prompt=generated.prompt_tokens or len(request.token_ids),
                tokens=len(generated.token_ids),
                cached=None if request.received is not None else generated.cached_tokens,
                retractions=generated.retractions,
                weights=versions.pop() if len(versions) == 1 else "",
            ),
        )
        self._changed()
        return generated

    def release(self, key: str) -> None:
        self._pool.release(key)
        self.limit.ends(key)
        self._changed()

    async def look(self) -> None:
        """Looks at the servers. Call it before the first admission."""
        if loads := await self._loads():
            queues = sum(one.waiting > 0 for one in loads)
            self.limit.looked(
                capacity=sum(one.cache_tokens for one in loads), queued=2 * queues >= len(loads)
            )
            self._apply()

    async def watch(self) -> None:
        """Adapts the limit. Runs until cancelled."""
        while True:
            for _ in range(LOOKS):
                await asyncio.sleep(LOOK_S)
                await self.look()
            self.limit.step()
            self._apply()

    async def _let_in(self, request: GenerateRequest) -> None:
        if self.limit.goes_on(request.key):
            return
        clock = Waiting(request.clock)
        clock.begin(WaitCause.CACHE, loop_now())
        try:
            while not self.limit.goes_on(request.key):
                turn = asyncio.get_running_loop().create_future()
                self._waiting[turn] = request.key
                try:
                    await turn
                finally:
                    self._waiting.pop(turn, None)
        finally:
            clock.end()

    def _changed(self) -> None:
        """After an action or an end: wakes actions now, and sets the number of places soon."""
        self._wake()
        if self._resizing is None:
            self._resizing = asyncio.get_running_loop().call_later(RESIZE_S, self._apply)

    def _apply(self) -> None:
        """Wakes the actions that may go on, and sets the number of places."""
        if self._resizing is not None:
            self._resizing.cancel()
            self._resizing = None
        self._wake()
        self._places.resize(self.limit.limit())

    def _wake(self) -> None:
        for turn, key in list(self._waiting.items()):
            if self.limit.goes_on(key) and not turn.done():
                turn.set_result(None)

    # ---- the pool's ----

    @property
    def any_up(self) -> bool:
        return self._pool.any_up

    @property
    def longest_prompt(self) -> int | None:
        return self._pool.longest_prompt

    def statistics(self) -> Mapping[str, Mapping[str, Any]]:
        return self._pool.statistics()

    def follow(self, key: str, other: str) -> None:
        self._pool.follow(key, other)

    async def open(self) -> None:
        await self._pool.open()

    async def close(self) -> None:
        if self._resizing is not None:
            self._resizing.cancel()
        await self._pool.close()

    async def keep_alive(self) -> None:
        await self._pool.keep_alive()
