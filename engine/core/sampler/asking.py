"""What a rollout asks of whoever samples for it: SGLang's pool, or an API's."""

from __future__ import annotations

from array import array
from typing import Protocol

from engine.core.sampler.action import OnAction, OnMark
from engine.core.sampler.stops import StopTable
from engine.core.sampler.waiting import Clock
from engine.types import Generated, Images
from toolwright.types import SamplingParams


class PolicySampler(Protocol):
    """See `engine.core.sampler.pool.SamplerPool`, whose sentences hold for every other one."""

    vocab_size: int

    @property
    def any_up(self) -> bool: ...

    @property
    def longest_prompt(self) -> int | None: ...

    def follow(self, key: str, other: str) -> None: ...

    def release(self, key: str) -> None: ...

    async def keep_alive(self) -> None: ...

    async def generate(
        self,
        *,
        key: str,
        token_ids: array[int],
        sampling: SamplingParams,
        max_new_tokens: int,
        stops: StopTable,
        on_action: OnAction,
        on_mark: OnMark | None = None,
        on_progress: OnAction | None = None,
        received: Generated | None = None,
        images: Images | None = None,
        clock: Clock | None = None,
        top_logprobs: int = 0,
    ) -> Generated: ...
