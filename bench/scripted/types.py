"""The words of the scripted sampler.

Owns the records that its modules exchange, its errors, and the interfaces of its observers. Knows
neither HTTP nor clocks nor scripts.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple, Protocol


class ScriptedSamplerError(Exception):
    """Base of every error of the scripted sampler."""


class ScriptError(ScriptedSamplerError):
    """A script could not be loaded, or produced something that is not a token."""


class SchemaError(ScriptedSamplerError):
    """The body breaks the wire schema: a real HTTP 400, for streams too."""


class RequestError(ScriptedSamplerError):
    """The body is well formed and requests something impossible.

    A 400 without streaming; with streaming an HTTP 200 that carries one error event.
    """


class StartError(ScriptedSamplerError):
    """The server could not start, for instance because its port is taken."""


class Token(NamedTuple):
    """One scripted token and the log-probability the sampler reports for it.

    top: (id, log-prob) of the likeliest tokens at its place, best first. Empty: the token, and
    others that share the rest of the probability.
    """

    id: int
    logprob: float
    top: tuple[tuple[int, float], ...] = ()

    def likeliest(self, count: int) -> tuple[tuple[int, float], ...]:
        """At most `count` of them."""
        if self.top:
            return self.top[:count]
        rest = max(1e-6, -math.expm1(min(self.logprob, 0.0))) / max(1, count - 1)
        others = ((i + (i >= self.id), math.log(rest)) for i in range(count - 1))
        return tuple(sorted([(self.id, self.logprob), *others], key=lambda one: -one[1]))


class PauseMode(StrEnum):
    """What a pause does to the replies in flight."""

    ABORT = "abort"
    """They end at once with what they have."""
    RETRACT = "retract"
    """They go back to the queue and are recomputed after the pause."""
    IN_PLACE = "in_place"
    """They freeze where they are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerateRequest:
    """A checked /generate body.

    `stop_token_ids` holds the ids that end the reply; `params` is the body's sampling_params as
    sent, for scripts that depend on them. `prompt_ids` are the ids with their images expanded;
    empty without images.
    """

    rid: str
    input_ids: tuple[int, ...]
    stream: bool
    return_logprob: bool
    return_prompt_token_ids: bool
    max_new_tokens: int
    stop_token_ids: frozenset[int]
    ignore_eos: bool
    stream_interval: int
    conversation: str
    params: Mapping[str, object]
    images: tuple[bytes, ...] = ()
    prompt_ids: tuple[int, ...] = ()
    top_logprobs: int = 0
    adapter: str = ""
    """Name of the adapter that samples; empty = none."""

    @property
    def prompt(self) -> tuple[int, ...]:
        """What the server works with and counts."""
        return self.prompt_ids or self.input_ids


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptRequest:
    """Everything that a script may read. Equal requests must give equal replies.

    `turn` counts the finished replies of the same conversation, from 0. A conversation is named by
    the body's session_id, else its routing_key, else its rid up to the first dot.
    """

    rid: str
    conversation: str
    turn: int
    input_ids: tuple[int, ...]
    params: Mapping[str, object]
    images: tuple[bytes, ...] = ()


class FinishReason(NamedTuple):
    """Why a reply ended. `kind` is stop, length or abort; each other field belongs to one kind."""

    kind: str
    matched: int | None = None
    length: int | None = None
    message: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightSpan:
    """Output tokens [start, end) were sampled under `version`."""

    version: str
    start: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenRequest:
    """One /generate body in the order of arrival, as the client sent it."""

    index: int
    body: Mapping[str, object]

    @property
    def input_ids(self) -> tuple[int, ...]:
        """The ids sent; empty when the body carried none."""
        ids = self.body.get("input_ids")
        return tuple(ids) if isinstance(ids, list) else ()

    @property
    def image_data(self) -> tuple[object, ...]:
        """The images sent, as they were sent; none where the body carried no list of them."""
        data = self.body.get("image_data")
        return tuple(data) if isinstance(data, list) else ()

    @property
    def rid(self) -> str | None:
        """The request id sent, if any."""
        rid = self.body.get("rid")
        return rid if isinstance(rid, str) else None


class Watch(Protocol):
    """Receives every streamed reply. Times are in ns of the monotonic clock."""

    def asked(self, request: GenerateRequest) -> None:
        """A valid request was read."""
        ...

    def replied(self, request: GenerateRequest, read_ns: int, written_ns: int) -> None:
        """The last event of its reply is about to be written."""
        ...


class ReplyLog(Protocol):
    """Records all that leaves the server. Versions are those of the server."""

    def began(self, rid: str, conversation: str, prompt: Sequence[int]) -> None:
        """A reply was admitted."""
        ...

    def sends(self, rid: str, version: str, token_ids: Sequence[int]) -> None:
        """Tokens of one version are about to be written."""
        ...

    def over(self, rid: str) -> None:
        """The whole reply was written."""
        ...

    def loaded(self, version: str) -> None:
        """Other weights were loaded."""
        ...
