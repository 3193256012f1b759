"""What an outside agent asks of its attempt, and why an attempt refuses it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto

from toolwright.types import Author, Ids, SamplingParams, StopReason


class Refusal(Enum):
    """Why an agent's request cannot be served."""

    UNFIT = auto()
    """The request itself is at fault."""
    CONTEXT_FULL = auto()
    TOO_MANY = auto()
    """The attempt has as many calls in flight as it may: the request may succeed later."""
    FULL = auto()
    """The attempt has as many calls, or bytes, as it may: no later request succeeds."""
    OVER = auto()
    """The attempt has ended, or the call was dropped."""
    AWAY = auto()
    """The engine stops; the attempt goes on in its next life."""


class CallRefused(Exception):
    """A request that an attempt cannot serve."""

    def __init__(self, refusal: Refusal, message: str) -> None:
        super().__init__(message)
        self.refusal = refusal


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRequest:
    """An agent's request, before its prompt has ids. For the fields see `Asked`."""

    root: bytes
    digests: Sequence[bytes]
    reasoning: Mapping[int, bytes]
    request: bytes
    sampling: SamplingParams
    n: int = 1
    agent: str = ""
    grammar: tuple[str, str] | None = None
    stops: tuple[str, ...] = ()
    stream: bool = False
    aside: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptIds:
    """Ids of a request: those after the matched completion, or all of them (`fresh`)."""

    token_ids: Ids
    authors: tuple[tuple[Author, int], ...]
    fresh: bool
    by_prefix: bool = False
    """See `Prompt.by_prefix` of the contract."""
    results: tuple[tuple[str, str], ...] = ()
    """(id, text) of each tool result among the new messages."""
    text: bytes | None = None
    """See `Prompt.messages` of the contract."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadCall:
    """A tool call that was read from a completion."""

    id: str
    name: str
    arguments: str
    invalid_reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompletionReply:
    """What an agent gets of a completion. For the fields see `Canonical` of the contract."""

    digest: bytes
    reasoning: bytes = b""
    calls: tuple[ReadCall, ...] = ()
    text: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentEnd:
    """How an agent ended. failure: why infrastructure ended it, so that another attempt follows.
    output: what it wrote to its output, or ""."""

    reason: StopReason
    error: str = ""
    answer: str | None = None
    failure: str = ""
    output: str = ""
