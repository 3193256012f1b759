"""The engine's own words, beside the shared record in `toolwright.types`."""

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
    """What a session told of one tool; see ToolDescriptor in the contract."""

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
        """The action is a tag with a body."""
        return bool(self.close_tag) and not self.json_call

    @property
    def raw(self) -> bool:
        """Only the service can read the action."""
        return not self.close_tag


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionRef:
    """A session on one tool service, as a later life of the engine can find it again.

    endpoint: the address that holds it. cancels: a call in flight there can be stopped.
    """

    service: str
    session_id: str
    endpoint: str
    tools: tuple[ToolSpec, ...]
    cancels: bool = False


def without_fork(tools: Iterable[ToolSpec]) -> list[str]:
    """Names of those that keep a state and cannot copy it: no session with one of them forks."""
    return [tool.name for tool in tools if tool.stateful and not tool.forks]


def tools_of(sessions: Iterable[SessionRef]) -> tuple[ToolSpec, ...]:
    """All tools of a trajectory. Where two sessions have a tool of one name, the tool is that of
    the first session, in the recipe's order."""
    named: dict[str, ToolSpec] = {}
    for session in sessions:
        for tool in session.tools:
            named.setdefault(tool.name, tool)
    return tuple(named.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One tool call as the protocol's parser read it.

    Where `tool` is empty a service finds it: the one that the recipe names `service`, else the
    recipe's first.
    """

    action: str
    tool: str = ""
    service: str = ""
    arguments: Mapping[str, Any] | None = None
    invalid_reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Calls:
    """The policy calls tools; the order of `calls` is that of their observations."""

    calls: tuple[Call, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Say:
    """The environment speaks without a tool: a correction, an instruction.

    budget: tokens of `text` that are kept; 0 = the recipe's limit of an observation.
    """

    text: str
    author: Author = Author.SYSTEM
    budget: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The policy gave its final answer."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """The trajectory is over for another reason than an answer."""

    reason: StopReason = StopReason.NO_ACTION_IN_OUTPUT


Decision = Calls | Say | Answer | End
"""What an action asks for, as a protocol reads it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """What a protocol sees of a trajectory: everything that happened, and nothing to change.

    turn: number of the turn whose action is decided, from 0. actions: texts of all earlier actions,
    special tokens kept. calls: those of earlier turns, with their outcomes. tools: those that the
    sessions have now.
    """

    task: Task
    turn: int
    actions: tuple[str, ...]
    calls: tuple[CallRecord, ...]
    events: tuple[Event, ...]
    tools: tuple[ToolSpec, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StopHit:
    """A stop inside generated tokens: keep the first `keep` tokens, drop the rest."""

    keep: int
    matched_token: int | None = None
    matched_text: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Images:
    """The images of one request.

    data: a data URI for each placeholder of the request's ids, in order. tell_prompt: the sampler
    shall tell which ids it made of the prompt.
    """

    data: tuple[str, ...] = ()
    tell_prompt: bool = False


VersionRun = tuple[WeightVersion, int]
"""(weight version, how many tokens in a row it wrote)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Generated:
    """One action as the sampler wrote it, or a part of one.

    token_ids: [n] int32; logprobs: [n] float32, at most 0; versions: runs whose tokens add up to n.
    stop: the text that ended it, None where none did. cut: the sampler wrote tokens after the stop,
    which were dropped. read_ns: monotonic clock, when the bytes that ended it were read; first_ns:
    those that brought the first token, 0 where nobody says.
    prompt_tokens: what the sampler counted in the prompt, images expanded, 0 where it did not say.
    prompt_ids: those tokens, where they were asked for. top_logprobs: [n] lists, of the likeliest
    tokens at each place, where they were asked for. remarks: what the record shall tell of it.
    """

    token_ids: Ids
    logprobs: Floats
    versions: tuple[VersionRun, ...]
    finish: FinishReason
    stop: str | None = None
    cut: bool = False
    read_ns: int = 0
    first_ns: int = 0
    prompt_tokens: int = 0
    prompt_ids: Sequence[int] = ()
    top_logprobs: Sequence[Sequence[float]] = ()
    remarks: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageMark:
    """How a policy is shown an image.

    text: stands for the image in a prompt, and encodes to `token_ids` wherever it stands.
    placeholder: the one of these ids that becomes as many tokens as the image takes. reserved:
    spellings of all tokens that stand for media; no other text may hold them.
    """

    text: str
    token_ids: tuple[int, ...]
    placeholder: int
    reserved: tuple[str, ...]


class Codec(Protocol):
    """Text to ids and back, without special-token prefixes."""

    def encode(self, text: str) -> list[int]:
        """Ids of a text of ours, in which control tokens are control tokens."""
        ...

    def encode_plain(self, text: str) -> list[int]:
        """Ids of a foreign text, in which what spells a control token stays text."""
        ...

    def chat_ids(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        generation_prompt: bool = True,
    ) -> list[int]:
        """Ids of messages through the chat template, in which what messages and tools spell stays
        text (`engine.core.text.foreign.OwnText` apart)."""
        ...

    def guarded(self, text: str) -> str:
        """Foreign text, to be put into an `OwnText`."""
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
