"""All replies in flight, and the one timer that drives them.

Owns admission, the shared ticker, pause and continue, aborts, and the weight version. Invariants: a
request id is in flight at most once; nothing is admitted and nothing grows while paused; every
token is recorded under the weights that were loaded when it was sampled. One timer serves all
replies: it sleeps until the earliest chunk is due and grows every reply that is due by then.

The rules of the real server that surprise a client are kept: an abort matches by prefix, but only
if its id is itself in flight; an abort of a request that still waits for a pause to end is lost,
and so is every later one of the same id; replies frozen in place are aborted when the pause ends;
an update outside a pause waits for all replies to end.

Knows neither HTTP nor what a reply says.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager

from bench.scripted.scheduling.batch import Batch, Gpu
from bench.scripted.scheduling.due_chunks import DueChunks
from bench.scripted.scheduling.generation import Generation
from bench.scripted.scheduling.memory import GpuMemory
from bench.scripted.scheduling.timing import Timing
from bench.scripted.types import PauseMode, RequestError

DUE_SLACK_S = 0.0005
"""Chunks due within this time go out together; the timers themselves are no finer than 1 ms."""


class Scheduler:
    """The replies in flight of one server. Must be made inside its running event loop."""

    def __init__(
        self,
        *,
        timing: Timing,
        weight_version: str,
        gpu: Gpu | None = None,
        loaded: Callable[[str], None] | None = None,
    ) -> None:
        """gpu: replies wait for it and share it; None = each has its own pace. loaded: called with
        the version whenever the weights become another version's."""
        self.batch = None if gpu is None else Batch(gpu)
        self._on_loaded = loaded
        self.weight_version = weight_version
        """What the server reports."""
        self.memory = GpuMemory()
        self._loaded = weight_version
        self._timing = timing
        self._loop = asyncio.get_running_loop()
        self._known: dict[str, Generation | None] = {}
        self._aborted: set[str] = set()
        self._queued: list[Generation] = []
        """Replies that a pause sent back. A modelled GPU has a queue of its own."""
        self._due = DueChunks()
        self._sampled_before = 0
        self._timer: asyncio.Handle | None = None
        self._paused: PauseMode | None = None
        self._paused_at = 0.0
        self._updates_waiting = 0
        self._call = asyncio.Lock()
        self._moved = asyncio.Condition()

    # ---- requests ----

    @property
    def paused(self) -> bool:
        """Whether a pause is on."""
        return self._paused is not None

    @property
    def running(self) -> int:
        """Replies that hold cache: neither finished nor sent back to the queue."""
        return sum(g is not None and g.finish is None for g in self._known.values()) - self.waiting

    @property
    def waiting(self) -> int:
        """Replies that a retracting pause sent back to the queue, or that wait for the GPU."""
        back = sum(g.finish is None for g in self._queued)
        return back + (0 if self.batch is None else self.batch.waiting(self._loop.time()))

    @property
    def held(self) -> int:
        """Requests that arrived during a pause or an update and wait for its end."""
        return sum(g is None for g in self._known.values())

    @property
    def sampled(self) -> int:
        """Tokens of all replies so far, also tokens that no client has read."""
        in_flight = sum(len(one.tokens) for one in self._known.values() if one is not None)
        return self._sampled_before + in_flight

    def register(self, rid: str) -> None:
        """Take a request in, before it is admitted.

        Raises:
            RequestError: the id is in flight already.
        """
        if rid in self._known:
            raise RequestError(f"Duplicate request ID detected: {rid}")
        self._known[rid] = None

    async def admitted(self) -> None:
        """Return once no pause and no waiting update holds new requests back."""
        if self._open():
            return
        async with self._moved:
            await self._moved.wait_for(self._open)

    def start(self, generation: Generation) -> None:
        """Begin to grow an admitted request's reply."""
        self._known[generation.request.rid] = generation
        if generation.finish is not None:
            return
        if self.batch is None:
            self._due.add(generation, self._loop.time() + next(generation.delays))
        else:
            self.batch.submit(generation)
            self._begin()
        self._arm()

    async def forget(self, rid: str) -> None:
        """The request is over, however it ended; its reply stops growing."""
        generation = self._known.pop(rid, None)
        self._aborted.discard(rid)
        if generation is not None:
            generation.abort_in_queue()
            self._sampled_before += len(generation.tokens)
            if generation in self._queued:
                self._queued.remove(generation)
            self._over(generation)
        if self._updates_waiting:
            await self._notify()

    # ---- control ----

    def abort(self, rid: str = "", *, abort_all: bool = False) -> None:
        """Abort one request (and all whose id begins with its id), or all."""
        if not abort_all:
            if not rid or rid not in self._known or rid in self._aborted:
                return
            self._aborted.add(rid)
        for known, generation in self._known.items():
            if generation is not None and (abort_all or known.startswith(rid)):
                self._abort_one(generation)

    async def pause(self, mode: PauseMode) -> None:
        """Stop growing and admitting; what happens to the replies in flight is the mode's."""
        if self._paused is None:
            self._paused_at = self._loop.time()
        self._paused = mode
        self._arm()
        match mode:
            case PauseMode.ABORT:
                for generation in self._generations():
                    generation.abort(self._loaded)
                self._queued.clear()
            case PauseMode.RETRACT:
                for generation in self._generations():
                    self._retract(generation)
            case PauseMode.IN_PLACE:
                pass

    async def resume(self) -> None:
        """End the pause: replies go on where they stopped, waiting requests are admitted."""
        if self._paused is None:
            return
        self._paused = None
        now = self._loop.time()
        shift = now - self._paused_at
        retracted = {id(generation) for generation in self._queued}
        self._queued.clear()
        if self.batch is not None:
            self.batch.delay(shift)
        recompute = now + self._timing.first_token_delay
        self._due.move(lambda one, due: recompute if id(one) in retracted else due + shift)
        for generation in self._generations():
            if generation.abort_requested:
                generation.abort(self._loaded)
        self._begin()
        self._arm()
        await self._notify()

    def can_flush(self) -> bool:
        """Whether the cache may be flushed: no reply holds any of it."""
        return self.running == 0 if self.paused else not any(self._generations())

    async def load_weights(self, version: str | None, *, flush: Callable[[], bool]) -> bool:
        """Load weights under `version`; outside a pause, after all replies have ended.

        False if `flush` could not flush the cache: the new weights are then loaded and sampled
        from, yet not reported. None keeps the version's name.
        """
        await self.until_idle()
        self._load(version or self._loaded)
        flushed = flush()
        if flushed:
            self.weight_version = self._loaded
        await self._notify()
        return flushed

    def rename_weights(self, version: str) -> None:
        """Report, and record from now on, another version for the weights that are loaded."""
        self._load(version)
        self.weight_version = version

    async def until_idle(self) -> None:
        """Outside a pause, return once all replies have ended; new ones wait for that."""
        if self.paused:
            return
        self._updates_waiting += 1
        try:
            async with self._moved:
                await self._moved.wait_for(lambda: not any(self._generations()))
        finally:
            self._updates_waiting -= 1
        await self._notify()

    @asynccontextmanager
    async def occupied(self) -> AsyncIterator[None]:
        """One control call at a time, and no reply grows in the body."""
        async with self._call:
            began = self._loop.time()
            self._arm()
            try:
                yield
            finally:
                shift = self._loop.time() - began if self._paused is None else 0.0
                self._due.move(lambda _, due: due + shift)
                if self.batch is not None:
                    self.batch.delay(shift)
        self._arm()

    async def until_resumed(self) -> None:
        """Return once no pause is on."""
        async with self._moved:
            await self._moved.wait_for(lambda: not self.paused)

    # ---- inside ----

    def _load(self, version: str) -> None:
        self._loaded = version
        if self._on_loaded is not None:
            self._on_loaded(version)

    def _open(self) -> bool:
        return self._paused is None and not self._updates_waiting

    def _generations(self) -> Iterator[Generation]:
        return (g for g in list(self._known.values()) if g is not None and g.finish is None)

    def _abort_one(self, generation: Generation) -> None:
        waits = self.batch is not None and not self.batch.runs(generation)
        if generation in self._queued or waits:
            generation.abort_in_queue()
        elif self.paused:
            generation.abort_requested = True
        else:
            generation.abort(self._loaded)

    def _retract(self, generation: Generation) -> None:
        """A pause sends a reply back to the queue, unless it is there already."""
        if self.batch is not None:
            if self.batch.runs(generation):
                self.batch.send_back(generation)
                self._due.remove(generation)
        elif generation not in self._queued:
            generation.retractions += 1
            self._queued.append(generation)

    def _begin(self) -> None:
        """Begins the replies that have room on the GPU. Each delays those that decode."""
        batch = self.batch
        if batch is None or self.paused:
            return
        now = self._loop.time()

        def delayed(one: Generation, due: float) -> float:
            return due + takes if batch.decodes(one, now) else due

        while (began := batch.begin(now)) is not None:
            generation, prefilled, takes = began
            self._due.move(delayed)
            self._due.add(generation, prefilled + next(generation.delays))

    def _grow(self, generation: Generation, due: float) -> None:
        if self.batch is not None and not self.batch.runs(generation):
            return  # another reply has sent it back just now
        before, count = len(generation.tokens), self._timing.tokens_per_chunk
        generation.grow(count, self._loaded)
        step = next(generation.delays)
        if self.batch is not None:
            gone = self.batch.grew(generation, len(generation.tokens) - before)
            if gone is not None:
                self._due.remove(gone)
            if generation.finish is None and gone is not generation:
                self._due.add(generation, self.batch.next_chunk(due, step, count))
            if generation.finish is not None:
                self._over(generation)
            elif gone is not None:
                self._begin()
        elif generation.finish is None:
            self._due.add(generation, due + step)

    def _over(self, generation: Generation) -> None:
        """The GPU has room for others."""
        if self.batch is not None:
            self.batch.over(generation)
            self._begin()
            self._arm()

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        due = self._due.first
        if due is not None and self._paused is None and not self._call.locked():
            if due <= self._loop.time():
                self._timer = self._loop.call_soon(self._tick)
            else:
                self._timer = self._loop.call_at(due, self._tick)

    def _tick(self) -> None:
        self._timer = None
        due_now = self._due.take(self._loop.time() + DUE_SLACK_S)
        if due_now:
            self.memory.sample()
        for due, generation in due_now if not self.memory.died else ():
            self._grow(generation, due)
        self._arm()

    async def _notify(self) -> None:
        async with self._moved:
            self._moved.notify_all()
