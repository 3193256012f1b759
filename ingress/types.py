"""The vocabulary: a request in no dialect's shape, and what a model wrote."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Role = Literal["system", "user", "assistant", "tool"]
ToolChoice = Literal["auto", "none", "required"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """A tool call of an assistant's message."""

    id: str
    name: str
    arguments: str
    """JSON text. A client's history may hold text that is not JSON."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One message of a conversation."""

    role: Role
    text: str = ""
    reasoning: str = ""
    calls: tuple[ToolCall, ...] = ()
    call_id: str = ""
    """Id of the call that a tool's message answers."""
    name: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Constraint:
    """A grammar that limits the completion."""

    kind: Literal["json_schema", "structural_tag"]
    text: str
    """JSON text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """Parameters that a client may set; None = the recipe's value."""

    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    seed: int | None = None
    max_new_tokens: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRequest:
    """One model call as an agent requests it."""

    model: str
    messages: tuple[Message, ...]
    tools: tuple[Mapping[str, Any], ...] = ()
    """Each as {"type": "function", "function": {...}}."""
    later_tools: tuple[Mapping[str, Any], ...] = ()
    """Tools that the prompt does not list: a tool's result shows them."""
    namespaces: tuple[str, ...] = ()
    """Groups of tools: the tools' names begin with "NAMESPACE."."""
    tool_choice: ToolChoice = "auto"
    named_tool: str = ""
    """With "required": the one tool that must be called; "" = any."""
    schema: str | None = None
    """JSON Schema of the text, as JSON text; None = any text."""
    n: int = 1
    stream: bool = False
    stream_usage: bool = False
    """The client wants a last chunk with the usage."""
    logprobs: bool = False
    sampling: Sampling = field(default_factory=Sampling)
    stops: tuple[str, ...] = ()
    token_ids: bool = False
    """The client wants the ids of the completions."""
    raw: str | tuple[int, ...] | None = None
    """A prompt that no template renders: text, or token ids. `messages` then has it as one text."""
    previous: str = ""
    """Response whose conversation the messages continue; "" without one."""
    instructions: int = 0
    """Number of the first messages that belong to this request alone, not to its conversation."""
    keep: bool = False
    """Whether a later request may name the response."""

    @property
    def all_tools(self) -> tuple[Mapping[str, Any], ...]:
        return (*self.tools, *self.later_tools)


@dataclass(frozen=True, slots=True, kw_only=True)
class Words:
    """A piece of a completion's text, or of its reasoning."""

    text: str
    reasoning: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadCall:
    """A whole tool call of a completion."""

    name: str
    arguments: str
    """JSON text of an object."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IllFormed:
    """A tool call that could not be read. The client gets it as text."""

    text: str
    reason: str


Piece = Words | ReadCall | IllFormed
"""A part of a completion, in the order of the text."""

End = Literal["stop", "length", "tool_calls"]
"""Why a completion ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenLogprob:
    """The log-prob of one sampled token."""

    token: str
    logprob: float
    token_id: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Numbers of tokens."""

    prompt_tokens: int = 0
    completion_tokens: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Begun:
    """The first event: the engine has the call. response: id of the response, without a prefix."""

    response: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """A piece of a completion that is certain. number: a call's place among the choice's calls."""

    choice: int
    piece: Words | ToolCall
    number: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Complete:
    """A completion that the engine has on disk, with its call."""

    choice: int
    message: Message
    end: End
    stop: str
    """The client's stop that ended it; "" without one."""
    logprobs: tuple[TokenLogprob, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CallEnd:
    """The last event: the call is on disk."""

    completions: tuple[Complete, ...]
    usage: Usage


CallEvent = Begun | Said | CallEnd
