"""The pace of a scripted reply.

Owns the delays and the chunk sizes. Invariants: the same seed and rid give the same delays; the
delays of one reply are relative to each other, so that a late timer does not slow the stream down.
Knows neither tokens nor clocks.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """First-token delay in seconds, then `tokens_per_second` in steps of `tokens_per_chunk`.

    `jitter` j stretches or shrinks every delay by a uniform factor in [1 - j, 1 + j]. An infinite
    rate (the default) hands out one chunk per pass of the event loop.
    """

    first_token_delay: float = 0.0
    tokens_per_second: float = math.inf
    tokens_per_chunk: int = 1
    jitter: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        if self.first_token_delay < 0:
            raise ValueError(
                f"first_token_delay is {self.first_token_delay}; give 0 or more seconds"
            )
        if not self.tokens_per_second > 0:
            raise ValueError(f"tokens_per_second is {self.tokens_per_second}; give more than 0")
        if self.tokens_per_chunk < 1:
            raise ValueError(f"tokens_per_chunk is {self.tokens_per_chunk}; give at least 1")
        if not 0 <= self.jitter < 1:
            raise ValueError(f"jitter is {self.jitter}; give a share in [0, 1)")

    def delays(self, rid: str) -> Iterator[float]:
        """Seconds before each chunk of the reply `rid`, without end."""
        step = self.tokens_per_chunk / self.tokens_per_second
        if not self.jitter:
            yield self.first_token_delay
            while True:
                yield step
        random = Random(f"{self.seed}:{rid}")
        low, high = 1 - self.jitter, 1 + self.jitter
        yield self.first_token_delay * random.uniform(low, high)
        while True:
            yield step * random.uniform(low, high)
