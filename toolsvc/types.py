"""The words of the tool service. Times are seconds.

`toolsvc.edge` converts them to and from `toolwright.tool.v1`: the host and its tools know no
protobuf. Objects that every call makes are NamedTuples, which take a third of the time of a frozen
dataclass.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from toolwright.types import Author, BlobRef, ToolErrorKind


@dataclass(frozen=True, slots=True, kw_only=True)
class TagFormat:
    """`<tag> body </tag>`: the body is the one argument."""

    open: str
    close: str
    argument: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonCallFormat:
    """`<tool_call>{"name": ..., "arguments": {...}}</tool_call>`."""

    open: str = "<tool_call>"
    close: str = "</tool_call>"


@dataclass(frozen=True, slots=True, kw_only=True)
class RawFormat:
    """The whole text of the action, as the argument `action`."""


ActionFormat = TagFormat | JsonCallFormat | RawFormat


@dataclass(frozen=True, slots=True, kw_only=True)
class Descriptor:
    """What an engine needs to stop generation, route an action and write a prompt."""

    name: str
    description: str
    usage: str
    arguments_schema: Mapping[str, Any]
    stop_strings: tuple[str, ...]
    format: ActionFormat
    stateful: bool
    parallel_calls: bool
    run_limit: float
    """Limit of a call whose caller sets none."""
    media: bool = False
    """Whether observations may hold images, videos or sound."""
    cancel: bool = True
    """Whether CancelCall or the run limit can stop a running call."""
    output_schema: Mapping[str, Any] | None = None
    """Schema of the observation, if it is known."""
    fork: bool = False
    """Whether a session with it can be forked."""
    fork_replays: bool = False
    """Whether a fork runs the session's calls again in a fresh environment."""

    def without_fork(self) -> Descriptor:
        """Descriptor of a tool that stands for this one and does not fork."""
        return replace(self, fork=False, fork_replays=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Text:
    """A piece of an observation."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Media:
    """An image, video or sound: of a task, or in an observation, which takes up to
    `host.blobs.SESSION_BYTES`."""

    media_type: str
    data: bytes


Part = Text | Media | BlobRef
"""Part of an observation. A tool gives Text and Media; the host puts a reference in place of media
that are too large to travel inline."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolError:
    """The tool ran and failed; the policy sees it."""

    kind: ToolErrorKind
    message: str
    session_lost: bool = False
    """Whether the session's state is gone, so that no later call of it can run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """Outcome of a call. A tool may return one, or just text."""

    observation: tuple[Part, ...] = ()
    valid: bool = True
    """Whether the action made sense."""
    invalid_reason: str = ""
    done: bool = False
    """Whether the trajectory is over."""
    reward: float | None = None
    metrics: Mapping[str, float] = field(default_factory=dict)
    error: ToolError | None = None
    truncated: bool = False
    author: Author = Author.TOOL
    """Author of the observation: TOOL, MEMORY or SYSTEM."""
    token_budget: int = 0
    """Most tokens of this observation, in place of the engine's own limit; 0 = the engine's."""

    @classmethod
    def of(cls, *parts: str | Part, **fields: Any) -> Result:
        """Result of texts and media, with other fields by name: `Result.of("right", done=True)`."""
        texts = (Text(text=part) if isinstance(part, str) else part for part in parts)
        return cls(observation=tuple(texts), **fields)


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionInfo:
    """A session, for a tool that opens a state for it."""

    session_id: str
    owner: str
    metadata: Mapping[str, Any]
    """Metadata of the task: a database id, a repository. Never the answer."""
    names: Collection[str] = ()
    """Names of all tools that the session has now: a live view."""
    blobs: Mapping[str, Media] = field(default_factory=dict)
    """Media of the task by their SHA-256, in the order of the request."""


class Call(NamedTuple):
    """One action, as its tool sees it."""

    session: SessionInfo
    call_id: str
    action: str
    """Raw text, the stop string included."""
    arguments: Mapping[str, Any]
    """Arguments as `Tool.make_arguments` made them."""
    turn: int
    turns_left: int
    last_step: bool
    run_limit: float
    metadata: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenRequest:
    """Request for a session; `digest` tells a repetition from another request."""

    session_id: str
    owner: str
    lease: float
    tools: tuple[str, ...]
    metadata: Mapping[str, Any]
    queue_limit: float
    digest: bytes
    blobs: tuple[BlobRef, ...] = ()
    """Media of the task; each has been sent before."""
    gives_way: float | None = None
    """Time without a request, in seconds, after which the session may end for another one if the
    host is full; None = never."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """An open session: its tools and the level of isolation in force ("" = no foreign code)."""

    session_id: str
    tools: tuple[Descriptor, ...]
    isolation: str
    startup: float
    """Time in which the tools made their states, in seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ForkRequest:
    """Request for a second session with the state of a first."""

    parent: str
    """Id of the first session."""
    child: OpenRequest
    """Request for the second session. What it leaves out is as in the first; its `digest` covers
    the whole request."""


class CallRequest(NamedTuple):
    """A call as it came in; `digest` covers all but the limits and the fence."""

    session_id: str
    call_id: str
    tool: str
    action: str
    arguments: Mapping[str, Any] | None
    turn: int
    turns_left: int
    last_step: bool
    queue_limit: float
    run_limit: float | None
    wait: float
    metadata: Mapping[str, Any]
    digest: bytes
    unreadable: str = ""
    """Reason why the arguments could not be read; "" = they could."""
    fence: int = 0
    """Grows with each caller that takes the session over; 0 = the caller sends none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """Not finished yet: ask again with the same call_id."""

    queued: float
    run: float


class Recorded(NamedTuple):
    """A finished call, as the ledger keeps it."""

    result: Result
    tool: str
    queued: float
    run: float
    isolation: str
    new_tools: tuple[Descriptor, ...] = ()
    """Tools that the call gave to the session; they can be called from the next turn on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Leases:
    """Sessions of one owner: those that were asked for and are gone, and those that are here."""

    lost: tuple[str, ...]
    held: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """State of an open session at its host."""

    call_ids: tuple[str, ...]
    """Ids of all calls that have begun to run, in that order, forgotten ones included."""
    tools: tuple[Descriptor, ...]
