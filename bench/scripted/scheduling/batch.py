"""What one GPU does at a time: a queue, prefills one after the other, and a batch that decodes.

The model has the three properties that thrash: a prefill stops all decoding, a request without room
in the cache waits, and a batch that outgrows the cache sends its newest request back to the queue.
A state machine without a clock: the caller passes times, in seconds.

Invariants
- Requests begin in the order of the queue. One that was sent back is the first in it.
- A request computes only what its conversation's cached prefix lacks, and at least one token.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass

from bench.scripted.scheduling.generation import Generation
from bench.scripted.scheduling.prefix_cache import PrefixCache


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """Size and speed of a modelled GPU."""

    cache_tokens: int
    """Capacity of the prefix cache."""
    prefill_rate: float = math.inf
    """Prompt tokens a second, one prefill at a time."""
    decode_rate: float = math.inf
    """Tokens a second of all streams together."""

    def __post_init__(self) -> None:
        if self.cache_tokens < 1:
            raise ValueError(f"cache_tokens is {self.cache_tokens}; give at least 1")
        for name in ("prefill_rate", "decode_rate"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} is {getattr(self, name)}; give more than 0")


class Batch:
    """The requests of one GPU."""

    def __init__(self, gpu: Gpu) -> None:
        self.gpu = gpu
        self.cache = PrefixCache(gpu.cache_tokens)
        self.retracted = 0
        """Requests that were sent back to the queue for want of room, so far."""
        self.prompt_tokens = 0
        """Prompt tokens of all requests that began."""
        self.cached_tokens = 0
        """Part of them that the cache had."""
        self._queue: deque[Generation] = deque()
        self._running: dict[Generation, tuple[float, float]] = {}
        """Begin and end of each request's prefill, oldest first."""
        self._free_at = 0.0
        """End of the last prefill."""

    @property
    def hit_rate(self) -> float:
        """Share of the prompt tokens so far that the cache had."""
        return self.cached_tokens / max(self.prompt_tokens, 1)

    def waiting(self, now: float) -> int:
        """Unfinished requests whose prefill has not begun."""
        later = [one for one, (begin, _) in self._running.items() if begin > now]
        return sum(one.finish is None for one in (*self._queue, *later))

    def runs(self, generation: Generation) -> bool:
        """Whether the request holds cache: it is in its prefill, or decodes."""
        return generation in self._running

    def decodes(self, generation: Generation, now: float) -> bool:
        """Whether its prefill is over."""
        return generation in self._running and self._running[generation][1] <= now

    def submit(self, generation: Generation) -> None:
        self._queue.append(generation)

    def begin(self, now: float) -> tuple[Generation, float, float] | None:
        """Begins the next request: (request, end of its prefill, seconds by which decoding is
        late). None: the queue is empty, or its first request has no room."""
        while self._queue and self._queue[0].finish is not None:
            self._queue.popleft()
        if not self._queue:
            return None
        one = self._queue[0]
        tokens = len(one.request.prompt) + len(one.tokens)
        name = one.request.conversation
        known = tokens if one.retractions else one.cached_tokens
        cached = max(0, min(known, self.cache.cached(name), tokens - 1))
        if not self.cache.take(name, tokens):
            return None
        self._queue.popleft()
        if not one.retractions:
            one.cached_tokens = cached
            self.prompt_tokens += tokens
            self.cached_tokens += cached
        begins = max(now, self._free_at)
        takes = (tokens - cached) / self.gpu.prefill_rate
        self._free_at = begins + takes
        self._running[one] = begins, self._free_at
        return one, self._free_at, takes

    def next_chunk(self, due: float, step: float, tokens: int) -> float:
        """Time of a stream's next chunk of `tokens` after one that was due at `due`. step: seconds
        of a chunk of a stream alone."""
        crowded = tokens * len(self._running) / self.gpu.decode_rate
        return max(due, self._free_at) + max(step, crowded)

    def grew(self, generation: Generation, tokens: int) -> Generation | None:
        """Counts sampled tokens. Returns the request that was sent back to make room, if any."""
        gone = None
        if not self.cache.grow(generation.request.conversation, tokens):
            gone = next(reversed(self._running))
            self.retracted += 1
            self.send_back(gone)
            if gone is not generation:
                self.cache.grow(generation.request.conversation, tokens)
        return gone

    def send_back(self, generation: Generation) -> None:
        """Sends a request back to the queue, as its first one."""
        generation.retractions += 1
        self._leave(generation)
        self._queue.appendleft(generation)

    def over(self, generation: Generation) -> None:
        """The request has ended. Its tokens can be evicted."""
        if generation in self._queue:
            self._queue.remove(generation)
        self._leave(generation)

    def delay(self, seconds: float) -> None:
        """Everything stood still for so long."""
        self._free_at += seconds
        moved = {one: (b + seconds, e + seconds) for one, (b, e) in self._running.items()}
        self._running = moved

    def _leave(self, generation: Generation) -> None:
        if self._running.pop(generation, None) is None:
            return
        name = generation.request.conversation
        if all(other.request.conversation != name for other in self._running):
            self.cache.release(name)
