"""An attempt at a trajectory is an append-only list of these events.

`state.py` folds them, `record.py` views them as the record, `loop.py` appends them. An event is a
fact: it never changes, and it holds nothing that earlier events imply.

Invariants
- An attempt begins with `Opened` or `Forked`, that of an outside agent with `Begun`. It ends with
  `Ended`. Only `Scored` may follow: from the reward function, then from the group hook. The last
  one of each counts.
- `decode(encode(events)) == events`, and repeated encoding gives the same bytes.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from engine.types import Call, SessionRef, ToolSpec, VersionRun
from toolwright.types import (
    Author,
    BlobRef,
    CallOutcome,
    FinishReason,
    Floats,
    Ids,
    RewardPart,
    SamplingParams,
    StopReason,
)
from toolwright.types import Event as Note


class Event(msgspec.Struct, frozen=True, kw_only=True, tag=str.lower, omit_defaults=True):
    """Base class of events; the tag is the class's name in lower case."""


class Opened(Event, frozen=True, kw_only=True):
    """The sessions are open and the prompt is rendered."""

    sessions: tuple[SessionRef, ...]
    prompt: Ids
    """Ids of the first request."""
    sampling: SamplingParams
    images: tuple[BlobRef, ...] = ()
    """One for each placeholder in `prompt`, in order."""
    seconds: float = 0.0
    clock_s: float = 0.0
    """Unix time at which the monotonic clock stood at zero."""
    iteration: str = ""
    """Iteration in which the group began, RUN.STEP; "" if unknown, and in logs of older engines."""


class Forked(Event, frozen=True, kw_only=True):
    """The log begins with the first `events` events of attempt `parent`."""

    parent: str
    events: int
    offset: int
    """Tokens of the parent's sequence that both share."""
    sessions: tuple[SessionRef, ...]
    """Forks of the parent's sessions."""


class Streamed(Event, frozen=True, kw_only=True):
    """Tokens of an unfinished action, so that a crash does not lose a long one."""

    token_ids: Ids
    logprobs: Floats
    versions: tuple[VersionRun, ...]
    prompt_tokens: int = 0
    prompt_ids: Ids | None = None
    node: int | None = None
    """Completion of an outside agent's call; None in our own turn loop."""
    spent_s: float = 0.0
    """See `Asked`."""


class Acted(Event, frozen=True, kw_only=True):
    """The policy wrote one action. For asked_ns, first_ns and acted_ns see `ActionTimings`."""

    token_ids: Ids
    logprobs: Floats
    versions: tuple[VersionRun, ...]
    finish: FinishReason
    text: str
    """Decoded, up to and including `stop`. A turn that ended by another of `Codec.turn_ends` has
    `end_of_turn` in its place, as `stop` has."""
    stop: str | None = None
    ends_turn: bool = False
    """Whether `stop` is the end of a turn."""
    image_tokens: tuple[int, ...] = ()
    """Tokens of each image of the request; empty if the request counted nothing new."""
    seconds: float = 0.0
    asked_ns: int = 0
    first_ns: int = 0
    acted_ns: int = 0
    node: int | None = None
    """Completion of an outside agent's call; None in our own turn loop."""


class Called(Event, frozen=True, kw_only=True):
    """A call was sent to its service, or refused here (`refused`).

    If an action has several calls, the first may come before the action has ended.
    """

    call_id: str
    turn: int
    index: int
    action: str
    tool: str = ""
    arguments: str = ""
    """JSON text, because its integers may be of any size; "" if the parser found no arguments."""
    service: str = ""
    refused: bool = False
    given_id: str = ""
    """Id that an outside agent has for it."""
    stop_read_ns: int = 0
    dispatched_ns: int = 0

    @property
    def call(self) -> Call:
        """The call as it was sent."""
        return Call(
            action=self.action,
            tool=self.tool,
            service=self.service,
            arguments=json.loads(self.arguments) if self.arguments else None,
        )


class Answered(Event, frozen=True, kw_only=True):
    """A call has its outcome."""

    call_id: str
    outcome: CallOutcome
    new_tools: tuple[ToolSpec, ...] = ()
    """Tools that the call added to its session."""
    result_ns: int = 0


class Appended(Event, frozen=True, kw_only=True):
    """The environment wrote: tools' answers, or a protocol's own text."""

    token_ids: Ids
    author: Author
    images: tuple[BlobRef, ...] = ()
    """One for each placeholder in `token_ids`."""
    fitted: bool = True
    """Whether all of it found room."""
    last: bool = True
    """Whether the turn's observation is complete."""
    seconds: float = 0.0
    """Time spent on the turn's calls."""


class Rewritten(Event, frozen=True, kw_only=True):
    """The protocol replaced the context between two turns, or after an action. Then the turn ends.

    The new context is the first `shared` tokens of the old one, then `token_ids`.
    """

    shared: int
    token_ids: Ids
    shown: int = 0
    """Number of images in the shared tokens."""
    images: tuple[BlobRef, ...] = ()
    """One for each placeholder in `token_ids`."""
    cause: str = ""


class Noted(Event, frozen=True, kw_only=True):
    """A note for the record; it changes nothing."""

    note: Note


class Ended(Event, frozen=True, kw_only=True):
    """The attempt generates nothing more."""

    reason: StopReason
    error: str = ""
    """Why infrastructure ended the attempt; "" if it did not."""
    seconds: float = 0.0
    answer: str | None = None
    """What the protocol read as the answer; None without one."""


class Scored(Event, frozen=True, kw_only=True):
    """The score by reward functions and stop rules, or by the group hook (`hooked`) on top."""

    reward: float
    hooked: bool = False
    parts: tuple[RewardPart, ...] = ()
    masked: bool = False
    outside_baseline: bool = False
    anchors: Mapping[int, tuple[str, ...]] = msgspec.field(default_factory=dict)
    weights: Mapping[str, float] = msgspec.field(default_factory=dict)
    """Weights other than 1, by the ids of their sequences."""
    notes: tuple[Note, ...] = ()
    seconds: float = 0.0


class Begun(Event, frozen=True, kw_only=True):
    """An outside agent may call the model; see `forest.py`."""

    sampling: SamplingParams
    train_superseded: bool = False
    """Whether a completion stays trainable after a later sample took its place."""
    train_constrained: bool = False
    """Whether a completion under a grammar is trainable."""
    taker: str = ""
    """Request that the attempt was handed out for: a repeated one gets the same attempt."""
    seconds: float = 0.0
    clock_s: float = 0.0
    """Unix time at which the monotonic clock stood at zero."""
    iteration: str = ""
    """Iteration in which the group began, RUN.STEP; "" if unknown."""


class Asked(Event, frozen=True, kw_only=True):
    """An outside agent made a model call, and its prompt has ids.

    Digests have 16 bytes: see toolwright/ingress/v1/ingress.proto.
    """

    call: int
    """Number of its first completion; completion i of `n` has number `call + i`."""
    root: bytes
    digest: bytes
    """Digest of its last message."""
    messages: int
    """Number of its messages."""
    request: bytes
    """Digest of the whole request, by which a retry finds the call."""
    token_ids: Ids
    """Ids after the first `shared` ids of completion `parent`."""
    authors: tuple[tuple[Author, int], ...]
    """Runs of `token_ids`, which add up to their number."""
    room: int
    """Most tokens of a completion."""
    sampling: SamplingParams
    parent: int | None = None
    """Completion that the ids go on from; None for a new root."""
    shared: int = 0
    n: int = 1
    agent: str = ""
    aside: bool = False
    """Whether it is never trained."""
    stops: tuple[str, ...] = ()
    grammar: tuple[str, str] | None = None
    """(kind, text) of the grammar that limits the completion."""
    asked_ns: int = 0
    text: bytes | None = None
    """Text of its messages after those of completion `text_after`; None = it is not kept."""
    text_after: int | None = None
    spent_s: float = 0.0
    """Seconds of the attempt's time limit that were spent, over all lives of the engine."""


class Replied(Event, frozen=True, kw_only=True):
    """The agent gets the completions of a call: they are turns from here on, in this order."""

    call: int
    digests: tuple[bytes, ...]
    """One for each completion: the digest of the conversation with it."""
    reasoning: tuple[bytes, ...]
    """Digest of each completion's reasoning, b"" without reasoning."""
    texts: tuple[bytes, ...] = ()
    """Message of each completion; empty if the call's text is not kept."""
    spent_s: float = 0.0
    """See `Asked`."""


class Dropped(Event, frozen=True, kw_only=True):
    """A call has no reader any more: no record holds it."""

    call: int
    why: str = ""


class Rewarded(Event, frozen=True, kw_only=True):
    """The agent or its environment reported a reward. The last report of each name counts."""

    reward: float | None = None
    """The whole reward; None = the sum of the parts."""
    parts: tuple[RewardPart, ...] = ()


AnyEvent = (
    Opened | Forked | Streamed | Acted | Called | Answered | Appended | Rewritten | Noted | Ended
    | Scored | Begun | Asked | Replied | Dropped | Rewarded
)  # fmt: skip


def encode(events: Sequence[AnyEvent]) -> bytes:
    """MessagePack of some events, in order. Raises TypeError for a value that no event may hold."""
    return _ENCODER.encode(events)


def decode(data: bytes) -> list[AnyEvent]:
    """Inverse of `encode`. Raises ValueError for anything else."""
    try:
        return _DECODER.decode(data)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise ValueError(f"no events: {error}") from error


def _to_bytes(value: Any) -> bytes:
    if isinstance(value, array):
        return value.typecode.encode() + value.tobytes()
    raise TypeError(f"an event cannot hold a {type(value).__name__}")


def _to_array(_kind: type, data: Any) -> Any:
    if not isinstance(data, bytes) or data[:1] not in (b"i", b"f"):
        raise ValueError("not an array of tokens")
    found: Any = array(chr(data[0]))
    found.frombytes(data[1:])
    return found


_ENCODER = msgspec.msgpack.Encoder(enc_hook=_to_bytes)
_DECODER = msgspec.msgpack.Decoder(list[AnyEvent], dec_hook=_to_array)
