"""The one interface of samplers to the turn loop. SGLang's pool implements it, and an API's pool.

A `GenerateRequest` stands for one action. It may take several HTTP requests, on several servers.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from engine.core.sampler.stops import StopTable
from engine.core.time_limit import TimeLimit
from engine.types import Generated, Images, StopHit
from toolwright.types import SamplingParams, Segment

FIRST_PROGRESS_NS = 2_000_000_000
LONGEST_PROGRESS_NS = 30_000_000_000
"""`on_progress` is called after the first of these times, then whenever the action has lasted twice
as long, and at least once in the second. An engine that dies loses half of an action in progress at
most, or its first 2 s. An engine that lives logs most actions once."""

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
    segments: tuple[Segment, ...] = ()
    """Authors of `token_ids`: an API is sent messages, and the policy's are the assistant's."""
    images: Images | None = None
    received: Generated | None = None
    """Tokens of this action from an earlier life of the engine; the result begins with them."""
    clock: TimeLimit | None = None
    """The trajectory's limit, which stands still while the action waits for a sampler."""
    top_logprobs: int = 0
    """Number of log-probs of the likeliest tokens for each token. Only for beginnings of actions:
    the router does not count their length."""
    grammar: tuple[str, str] | None = None
    """(kind, text) of the grammar that limits the action, as SGLang's sampling parameter of that
    kind. Only for samplers of token ids. A server knows its place in a grammar only from the first
    token on, so a broken action fails in place of going on."""
    progress_ns: int | None = None
    """Interval between calls of `on_progress`; None = growing intervals, see above."""
    on_action: OnAction = ignore
    """Called once with the later result of `generate`, inside the read that brought the stop and
    before the stream has ended. Not called without a stop."""
    on_mark: OnMark | None = None
    """Called when one of the stop table's marks is complete."""
    on_progress: OnAction | None = None
    """Called with chunks, once in an interval, and once more at cancellation. It gets the tokens
    since the last call, excluding `received`. The result may correct their versions."""


class PolicySampler(Protocol):
    """The samplers of a run, behind one name."""

    vocab_size: int

    @property
    def any_up(self) -> bool:
        """Whether a server takes requests now."""
        ...

    @property
    def longest_prompt(self) -> int | None:
        """Most tokens of a prompt that every server takes; None if no server says it."""
        ...

    def statistics(self) -> Mapping[str, Mapping[str, Any]]:
        """Counts and states for the status page, by server."""
        ...

    def follow(self, key: str, other: str) -> None:
        """Requests of `key` go to the server of `other`, which has their prefix."""
        ...

    def release(self, key: str) -> None:
        """Forgets the server of a trajectory that has ended."""
        ...

    async def open(self) -> None:
        """Returns when a server answers. Raises StartupError if none can be used."""
        ...

    async def close(self) -> None:
        """Ends all connections."""
        ...

    async def keep_alive(self) -> None:
        """Brings servers back that went down. Runs until cancelled."""
        ...

    async def generate(self, request: GenerateRequest) -> Generated:
        """Samples one action. Raises SamplerFailed if no server can.

        A sampler that sees the stop before its stream ends calls `request.on_action` then. The turn
        loop handles an action that comes only as the result.
        """
        ...
