"""The words of the tool service. Times are seconds.

`toolsvc.edge` converts them to and from `toolwright.tool.v1`: the host and its tools know no
protobuf. What is made anew for every call is a NamedTuple: a frozen dataclass takes three
times as long to make.
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
    """The tool gets the action text as it is, as the argument `action`."""


ActionFormat = TagFormat | JsonCallFormat | RawFormat


@dataclass(frozen=True, slots=True, kw_only=True)
class Descriptor:
    """What an engine needs to know to stop generation, route an action and write a prompt."""

    name: str
    description: str
    usage: str
    arguments_schema: Mapping[str, Any]
    stop_strings: tuple[str, ...]
    format: ActionFormat
    stateful: bool
    parallel_calls: bool
    run_limit: float
    """The one that the tool would choose."""
    media: bool = False
    """Observations may hold images, videos or sound."""
    cancel: bool = True
    """A call can be stopped while it runs, by CancelCall or its run limit."""
    output_schema: Mapping[str, Any] | None = None
    """Of the observation, where it is known."""
    fork: bool = False
    """A session with it can be had a second time, state and all."""
    fork_replays: bool = False
    """By running the session's calls again in a fresh environment."""

    def without_fork(self) -> Descriptor:
        """For a tool that stands for another one and does not fork with it."""
        return replace(self, fork=False, fork_replays=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Text:
    """A piece of an observation."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Media:
    """An image, video or sound: of a task, or in an observation, there of any size up to
    `host.blobs.SESSION_BYTES`."""

    media_type: str
    data: bytes


Part = Text | Media | BlobRef
"""A tool gives Text and Media; the host puts a reference in place of media that are too large to
travel inline."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolError:
    """The tool ran and failed; the policy sees it."""

    kind: ToolErrorKind
    message: str
    session_lost: bool = False
    """The session's state went with it; no later call of this session can run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What a call came to. A tool may return one, or just text."""

    observation: tuple[Part, ...] = ()
    valid: bool = True
    """The action was understood."""
    invalid_reason: str = ""
    done: bool = False
    """The trajectory is over."""
    reward: float | None = None
    metrics: Mapping[str, float] = field(default_factory=dict)
    error: ToolError | None = None
    truncated: bool = False
    author: Author = Author.TOOL
    """Who speaks in the observation: TOOL, MEMORY or SYSTEM."""
    token_budget: int = 0
    """Tokens that this observation may take, in place of the engine's own limit; 0 = that one."""

    @classmethod
    def of(cls, *parts: str | Part, **fields: Any) -> Result:
        """`Result.of("right", done=True)`: of texts and media, and the other fields by name."""
        texts = (Text(text=part) if isinstance(part, str) else part for part in parts)
        return cls(observation=tuple(texts), **fields)


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionInfo:
    """What a tool learns of the session that it opens a state for."""

    session_id: str
    owner: str
    metadata: Mapping[str, Any]
    """Of the task: a database id, a repository. Never the answer."""
    names: Collection[str] = ()
    """Of all tools that the session has now: a live view."""
    blobs: Mapping[str, Media] = field(default_factory=dict)
    """The task's media by their SHA-256, in the order in which the request names them."""


class Call(NamedTuple):
    """One action, as its tool sees it."""

    session: SessionInfo
    call_id: str
    action: str
    """Raw text up to and including the stop string."""
    arguments: Mapping[str, Any]
    """Checked against the tool's schema."""
    turn: int
    turns_left: int
    last_step: bool
    run_limit: float
    metadata: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenRequest:
    """A caller's wish for a session; `digest` tells a repetition from another wish."""

    session_id: str
    owner: str
    lease: float
    tools: tuple[str, ...]
    metadata: Mapping[str, Any]
    queue_limit: float
    digest: bytes
    blobs: tuple[BlobRef, ...] = ()
    """Of the task; each has been sent before."""
    gives_way: float | None = None
    """Seconds for which nothing was asked of the session, after which it may end for another where
    the host is full. None = it never gives way."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """An open session: its tools and the level of isolation in force ("" = no foreign code)."""

    session_id: str
    tools: tuple[Descriptor, ...]
    isolation: str
    startup: float
    """Seconds that the tools took to make their states."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ForkRequest:
    """A caller's wish for a second session with the state of a first."""

    parent: str
    """Id of the first session."""
    child: OpenRequest
    """What it leaves out is as in the first session; its `digest` covers the whole wish."""


class CallRequest(NamedTuple):
    """A call as it came in; `digest` covers all but the limits."""

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
    """Why the arguments that came could not be read, where they could not."""


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
    """What the session can call from the next turn on, by this call."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Leases:
    """Of one owner: sessions asked for that are not here any more, and those that are."""

    lost: tuple[str, ...]
    held: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """What a host holds of an open session."""

    call_ids: tuple[str, ...]
    """Of all calls that have begun to run, in that order, also of those that are forgotten."""
    tools: tuple[Descriptor, ...]
