"""The one interface of samplers to the turn loop. SGLang's pool implements it, and an API's pool.

A `GenerateRequest` stands for one action. It may take several HTTP requests, on several servers.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from engine.core.sampler.stops import StopTable
from engine.core.time_limit import TimeLimit
from engine.types import Generated, Images, StopHit
from toolwright.types import SamplingParams

OnAction = Callable[[Generated], None]
OnMark = Callable[["array[int]", StopHit, int], None]
"""(the action's token ids up to the mark, the mark, ns when its bytes were read)."""


def ignore(_generated: Generated) -> None:
    """An `on_action` for callers that await the result of `generate`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerateRequest:
    """One action to sample after `token_ids`."""

    key: str
    """Name of the trajectory's attempt: requests of one key share a server's prefix cache."""
    token_ids: array[int]
    """[n] int32, the whole prompt; one placeholder for each image."""
    sampling: SamplingParams
    stops: StopTable
    max_new_tokens: int
    """Longest action in tokens, including those of `received`."""
    images: Images | None = None
    received: Generated | None = None
    """Tokens of this action from an earlier life of the engine; the result begins with them."""
    clock: TimeLimit | None = None
    """The trajectory's limit, which stands still while the action waits for a sampler."""
    top_logprobs: int = 0
    """Number of log-probs of the likeliest tokens for each token. Only for beginnings of actions:
    the router does not count their length."""
    on_action: OnAction = ignore
    """Called once with the later result of `generate`, inside the read that brought the stop and
    before the stream has ended. Not called without a stop."""
    on_mark: OnMark | None = None
    """Called when one of the stop table's marks is complete."""
    on_progress: OnAction | None = None
    """Called about once a second, and once more at cancellation, with the tokens since the last
    call, excluding `received`. The result may correct their versions."""


class PolicySampler(Protocol):
    """`engine.core.sampler.pool.SamplerPool` says what each method does. An API's pool differs in
    `generate`: it never calls `on_action`."""

    vocab_size: int

    @property
    def any_up(self) -> bool: ...

    @property
    def longest_prompt(self) -> int | None: ...

    def follow(self, key: str, other: str) -> None: ...

    def release(self, key: str) -> None: ...

    async def keep_alive(self) -> None: ...

    async def generate(self, request: GenerateRequest) -> Generated: ...
