"""What an attempt at a trajectory is: an append-only list of these events.

`state.py` folds them, `record.py` views them as the record, `loop.py` appends them. An event is a
fact: it is never changed, and what can be derived from earlier events is not in it.

Invariants
- An attempt begins with `Opened` or `Forked` and ends with `Ended`; after that only `Scored` may
  come: the reward function's and then the group hook's. Of each the last one counts.
- `decode(encode(events)) == events`, byte for byte the same however often.
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
    """Base of all of them; the tag is the class's name in lower case."""


class Opened(Event, frozen=True, kw_only=True):
    """The sessions are open and the prompt is rendered.

    prompt: ids of the first request; images: one for each placeholder in it, in order. clock_s:
    unix time at which the monotonic clock stood at zero. iteration: the one that the group began
    in, RUN.STEP; "" where none is known, and in logs of older engines.
    """

    sessions: tuple[SessionRef, ...]
    prompt: Ids
    sampling: SamplingParams
    images: tuple[BlobRef, ...] = ()
    seconds: float = 0.0
    clock_s: float = 0.0
    iteration: str = ""


class Forked(Event, frozen=True, kw_only=True):
    """The log begins with the first `events` events of attempt `parent`.

    sessions: forks of the parent's. offset: tokens of the parent's sequence that both share.
    """

    parent: str
    events: int
    offset: int
    sessions: tuple[SessionRef, ...]


class Streamed(Event, frozen=True, kw_only=True):
    """Tokens of an action that is not finished yet, so that a crash does not lose a long one."""

    token_ids: Ids
    logprobs: Floats
    versions: tuple[VersionRun, ...]
    prompt_tokens: int = 0
    prompt_ids: Ids | None = None


class Acted(Event, frozen=True, kw_only=True):
    """The policy wrote one action.

    text: decoded, up to and including `stop`; a turn that ended by another of `Codec.turn_ends` has
    `end_of_turn` in its place, as `stop` has. ends_turn: `stop` is the end of a turn.
    image_tokens: tokens that each image of the request took, empty where nothing new was learnt.
    asked_ns, first_ns, acted_ns: see `ActionTimings`.
    """

    token_ids: Ids
    logprobs: Floats
    versions: tuple[VersionRun, ...]
    finish: FinishReason
    text: str
    stop: str | None = None
    ends_turn: bool = False
    image_tokens: tuple[int, ...] = ()
    seconds: float = 0.0
    asked_ns: int = 0
    first_ns: int = 0
    acted_ns: int = 0


class Called(Event, frozen=True, kw_only=True):
    """A call was handed to its service's channel, or refused here (`refused`).

    With several calls in an action the first may come before the action has ended. arguments: JSON,
    "" where the parser knew none; text, because its integers may be of any size.
    """

    call_id: str
    turn: int
    index: int
    action: str
    tool: str = ""
    arguments: str = ""
    service: str = ""
    refused: bool = False
    stop_read_ns: int = 0
    dispatched_ns: int = 0

    @property
    def call(self) -> Call:
        """The call as it was handed on."""
        return Call(
            action=self.action,
            tool=self.tool,
            service=self.service,
            arguments=json.loads(self.arguments) if self.arguments else None,
        )


class Answered(Event, frozen=True, kw_only=True):
    """A call has its outcome. new_tools: those that its session has by this call."""

    call_id: str
    outcome: CallOutcome
    new_tools: tuple[ToolSpec, ...] = ()
    result_ns: int = 0


class Appended(Event, frozen=True, kw_only=True):
    """The environment spoke: what tools answered, or what the protocol said.

    images: one for each placeholder in `token_ids`. fitted: all of it found room. last: the turn's
    observation is complete. seconds: spent on the turn's calls.
    """

    token_ids: Ids
    author: Author
    images: tuple[BlobRef, ...] = ()
    fitted: bool = True
    last: bool = True
    seconds: float = 0.0


class Noted(Event, frozen=True, kw_only=True):
    """Something that the record shall tell; it changes nothing."""

    note: Note


class Ended(Event, frozen=True, kw_only=True):
    """Nothing more will be generated. error: why infrastructure ended it. answer: what the protocol
    read as the answer, None without one."""

    reason: StopReason
    error: str = ""
    seconds: float = 0.0
    answer: str | None = None


class Scored(Event, frozen=True, kw_only=True):
    """What reward functions and stop rules made of it, or the group hook (`hooked`) on top."""

    reward: float
    hooked: bool = False
    parts: tuple[RewardPart, ...] = ()
    masked: bool = False
    outside_baseline: bool = False
    anchors: Mapping[int, tuple[str, ...]] = msgspec.field(default_factory=dict)
    notes: tuple[Note, ...] = ()
    seconds: float = 0.0


AnyEvent = (
    Opened | Forked | Streamed | Acted | Called | Answered | Appended | Noted | Ended | Scored
)


def encode(events: Sequence[AnyEvent]) -> bytes:
    """MessagePack of some events, in order. TypeError for a value that no event may hold."""
    return _ENCODER.encode(events)


def decode(data: bytes) -> list[AnyEvent]:
    """Inverse of `encode`. ValueError for anything else."""
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
        raise ValueError("no array of tokens")
    found: Any = array(chr(data[0]))
    found.frombytes(data[1:])
    return found


_ENCODER = msgspec.msgpack.Encoder(enc_hook=_to_bytes)
_DECODER = msgspec.msgpack.Decoder(list[AnyEvent], dec_hook=_to_array)
