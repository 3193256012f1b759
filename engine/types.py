"""The engine's own types, beside the shared record in `toolwright.types`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from toolwright.reading.action_ends import Tags
from toolwright.types import (
    Author,
    CallRecord,
    Event,
    FinishReason,
    Floats,
    Ids,
    StopReason,
    Task,
    WeightVersion,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSpec:
    """Description of one tool that a session sent; see ToolDescriptor in the contract."""

    name: str
    description: str = ""
    usage: str = ""
    arguments_schema: Mapping[str, Any] = field(default_factory=dict)
    stop_strings: tuple[str, ...] = ()
    open_tag: str = ""
    close_tag: str = ""
    argument: str = ""
    json_call: bool = False
    parallel_calls: bool = False
    stateful: bool = True
    """Its calls change a state that later calls see."""
    forks: bool = False
    """A session of it can be forked."""
    service: str = ""

    @property
    def tagged(self) -> bool:
        """Whether the action is a tag with a body."""
        return bool(self.close_tag) and not self.json_call

    @property
    def raw(self) -> bool:
        """Whether only the service can read the action."""
        return not self.close_tag


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionRef:
    """A session on one tool service. A later life of the engine finds the session again by it."""

    service: str
    session_id: str
    endpoint: str
    """Address that holds the session."""
    tools: tuple[ToolSpec, ...]
    cancels: bool = False
    """Whether a call in flight there can be stopped."""


def without_fork(tools: Iterable[ToolSpec]) -> list[str]:
    """Names of the tools that keep state and cannot copy it. A session with such a tool cannot
    fork."""
    return [tool.name for tool in tools if tool.stateful and not tool.forks]


def tools_of(sessions: Iterable[SessionRef]) -> tuple[ToolSpec, ...]:
    """All tools of a trajectory. If two sessions have a tool of the same name, the first session's
    tool counts, in the recipe's order."""
    named: dict[str, ToolSpec] = {}
    for session in sessions:
        for tool in session.tools:
            named.setdefault(tool.name, tool)
    return tuple(named.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One tool call as the protocol's parser read it."""

    action: str
    tool: str = ""
    """Name of the tool. If it is empty, a service finds the tool."""
    service: str = ""
    """Service that finds a tool without a name; "" is the recipe's first service."""
    arguments: Mapping[str, Any] | None = None
    invalid_reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Calls:
    """The policy calls tools; the order of `calls` is that of their observations."""

    calls: tuple[Call, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Say:
    """The environment writes without a tool: a correction or an instruction."""

    text: str
    author: Author = Author.SYSTEM
    budget: int = 0
    """Tokens of `text` that are kept; 0 is the recipe's limit of an observation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The policy gave its final answer."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """The trajectory is over for another reason than an answer."""

    reason: StopReason = StopReason.NO_ACTION_IN_OUTPUT


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewrite:
    """The context is replaced: the next action is written after a prompt of `messages`.

    The protocol's `prompt` renders them in place of the task's messages. The policy's tokens so far
    stay in the record, in a sequence of their own.
    """

    messages: tuple[Mapping[str, Any], ...]
    cause: str = "rewrite"
    """Name of the cause in the record and in the learner's metrics."""


Decision = Calls | Say | Answer | End | Rewrite
"""What a protocol decides about an action."""


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """Read-only view of a trajectory that a protocol gets."""

    task: Task
    turn: int
    """Number of the turn whose action is decided, from 0."""
    actions: tuple[str, ...]
    """Texts of all earlier actions, special tokens kept."""
    calls: tuple[CallRecord, ...]
    """Calls of earlier turns, with their outcomes."""
    events: tuple[Event, ...]
    tools: tuple[ToolSpec, ...]
    """Tools that the sessions have now."""
    context: int = 0
    """Number of tokens in the context before an action. Only `Rewriting.rewrite` gets it."""
    room: int = 0
    """Number of tokens that the environment may still write. Only `Rewriting.rewrite` gets it."""
    seen: str = ""
    """Text of the last observation as the policy read it, its frame included. Only
    `Rewriting.rewrite` gets it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StopHit:
    """A stop inside generated tokens: keep the first `keep` tokens, drop the rest."""

    keep: int
    matched_token: int | None = None
    matched_text: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Images:
    """The images of one request."""

    data: tuple[str, ...] = ()
    """A data URI for each placeholder of the request's ids, in order."""
    return_prompt_ids: bool = False
    """Whether the sampler must return the ids that it made of the prompt."""


VersionRun = tuple[WeightVersion, int]
"""(weight version, how many tokens in a row it wrote)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Generated:
    """One action, or a part of one, as the sampler wrote it."""

    token_ids: Ids
    """[n] int32."""
    logprobs: Floats
    """[n] float32, at most 0."""
    versions: tuple[VersionRun, ...]
    """Runs whose tokens add up to n."""
    finish: FinishReason
    stop: str | None = None
    """Text that ended the action; None without one."""
    cut: bool = False
    """Whether the sampler wrote tokens after the stop, which were dropped."""
    read_ns: int = 0
    """Monotonic clock when the bytes with the end were read, in nanoseconds."""
    first_ns: int = 0
    """The same for the first token; 0 if it is unknown."""
    prompt_tokens: int = 0
    """Tokens that the sampler counted in the prompt, images expanded; 0 if it did not say."""
    prompt_ids: Sequence[int] = ()
    """Ids of these tokens, if the request wanted them."""
    top_logprobs: Sequence[Sequence[float]] = ()
    """[n] lists of the likeliest tokens at each position, if the request wanted them."""
    remarks: Mapping[str, Any] | None = None
    """Remarks about the action for the record."""
    cached_tokens: int | None = None
    """Prompt tokens that the sampler's prefix cache had; None if it did not say."""
    retractions: int = 0
    """Times that a sampler sent the action back to its queue."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageMark:
    """How the prompt shows an image to a policy."""

    text: str
    """Stands for the image in a prompt and encodes to `token_ids` wherever it stands."""
    token_ids: tuple[int, ...]
    placeholder: int
    """The id among `token_ids` that becomes as many tokens as the image takes."""
    reserved: tuple[str, ...]
    """Spellings of all tokens that stand for media; no other text may contain them."""


class Codec(Protocol):
    """Text to token ids and back, without special-token prefixes."""

    def encode(self, text: str) -> list[int]:
        """Token ids of a text of ours. Control tokens in it are encoded as control tokens."""
        ...

    def encode_plain(self, text: str) -> list[int]:
        """Token ids of a foreign text. Spellings of control tokens in it stay text."""
        ...

    def chat_ids(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        generation_prompt: bool = True,
    ) -> list[int]:
        """Token ids of messages through the chat template. Spellings of control tokens in messages
        and tools stay text, except inside `toolwright.chat.foreign.OwnText`."""
        ...

    def guarded(self, text: str) -> str:
        """Foreign text in a form that an `OwnText` may contain."""
        ...

    def decode(self, token_ids: Sequence[int]) -> str: ...

    def token_id(self, token: str) -> int | None:
        """Id of a text that is exactly one token, else None."""
        ...

    def chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        generation_prompt: bool = True,
    ) -> str:
        """Messages through the chat template, as text."""
        ...

    @property
    def end_of_turn(self) -> str:
        """The token that the chat template writes after an assistant's message."""
        ...

    @property
    def turn_ends(self) -> tuple[str, ...]:
        """Texts that end an assistant's turn, `end_of_turn` first."""
        ...

    @property
    def thought(self) -> Tags | None:
        """Tags of a thought, if the chat template has thoughts."""
        ...

    @property
    def image_mark(self) -> ImageMark | None:
        """How the policy is shown an image; None for one that reads text alone."""
        ...
