"""The record of one trajectory, which engine and learner share.

`toolwright.vocabulary` defines its enumerations; this module exports them too.

Invariants
- A segment is a maximal run of tokens with one author and one weight version.
- Inside a sequence the tokens sent at turn j+1 begin with all tokens of turn j: segments are
  only ever appended.
- Token ids are those that the sampler returned or that one encoding of an observation gave;
  nothing is decoded and encoded again.
- Loss mask, action spans and staleness are derived from the segments, stored nowhere.
- Arrays of tokens are never changed once a record holds them.

The protobuf twin of every class is in `toolwright.common.v1`; `toolwright.wire` converts.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from toolwright.vocabulary import Author as Author
from toolwright.vocabulary import FinishKind as FinishKind
from toolwright.vocabulary import Purpose as Purpose
from toolwright.vocabulary import SamplingParams as SamplingParams
from toolwright.vocabulary import Status as Status
from toolwright.vocabulary import StopReason as StopReason
from toolwright.vocabulary import ToolErrorKind as ToolErrorKind
from toolwright.vocabulary import WeightVersion as WeightVersion

if TYPE_CHECKING:
    Ids = array[int]
    Floats = array[float]
else:  # `array` takes no parameters before Python 3.12
    Ids = Floats = array


def ids(values: Iterable[int] = ()) -> Ids:
    """Token ids as an array of int32. Raises OverflowError for an id that does not fit."""
    return values if isinstance(values, array) else array("i", values)


def floats(values: Iterable[float] = ()) -> Floats:
    """Numbers as an array of float32."""
    return values if isinstance(values, array) else array("f", values)


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishReason:
    """Why a model segment ends; at most one of the matches is set."""

    kind: FinishKind
    matched_token: int | None = None
    matched_text: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BlobRef:
    """A content-addressed blob. `sha256` is lower-case hex, `size` bytes."""

    sha256: str
    media_type: str
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MediaRef:
    """A blob at its place in a segment, in expanded token positions."""

    blob: BlobRef
    token_offset: int
    placeholder_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenTensor:
    """Named side data with one row a token; `data` is little-endian, C order."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    data: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """A maximal run of tokens with one author and one weight version.

    token_ids: [n] int32; logprobs: [n] float32 behaviour log-probs, None unless the policy wrote
    the segment. Other iterables are copied into arrays.
    """

    author: Author
    token_ids: Ids
    turn: int = 0
    logprobs: Floats | None = None
    weight_version: WeightVersion | None = None
    trainable: bool = False
    sampling: SamplingParams | None = None
    finish: FinishReason | None = None
    media: tuple[MediaRef, ...] = ()
    tensors: tuple[TokenTensor, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "token_ids", ids(self.token_ids))
        if self.logprobs is not None:
            object.__setattr__(self, "logprobs", floats(self.logprobs))
        if self.logprobs is not None and len(self.logprobs) != len(self.token_ids):
            raise ValueError(
                f"segment of {len(self.token_ids)} tokens has {len(self.logprobs)} log-probs"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Sequence:
    """Segments that one request after another extended."""

    id: str
    segments: tuple[Segment, ...]
    parent: str | None = None
    fork_offset: int | None = None
    agent: str = ""
    weight: float = 1.0
    """The sequence counts in the loss as that many copies of it. 0 or more; 0 = not trained on."""

    @property
    def token_ids(self) -> Ids:
        """[T] int32 ids of all segments in order."""
        found = ids()
        for segment in self.segments:
            found.extend(segment.token_ids)
        return found

    @property
    def loss_mask(self) -> tuple[bool, ...]:
        """[T] True on trainable tokens."""
        return tuple(s.trainable for s in self.segments for _ in s.token_ids)

    @property
    def logprobs(self) -> Floats:
        """[T] float32 behaviour log-probs, 0.0 where the policy did not write."""
        found = floats()
        for segment in self.segments:
            if segment.logprobs is None:
                found.frombytes(bytes(found.itemsize * len(segment.token_ids)))
            else:
                found.extend(segment.logprobs)
        return found

    @property
    def action_spans(self) -> tuple[tuple[int, int, int], ...]:
        """(turn, start, end) of the policy's tokens, one a turn, half-open token positions."""
        spans: list[tuple[int, int, int]] = []
        position = 0
        for segment in self.segments:
            end = position + len(segment.token_ids)
            if segment.author is Author.MODEL:
                if spans and spans[-1][0] == segment.turn and spans[-1][2] == position:
                    spans[-1] = (segment.turn, spans[-1][1], end)
                else:
                    spans.append((segment.turn, position, end))
            position = end
        return tuple(spans)

    @property
    def weight_versions(self) -> tuple[WeightVersion, ...]:
        """Versions that wrote in this sequence, in order of appearance, without repeats."""
        return tuple(
            dict.fromkeys(s.weight_version for s in self.segments if s.weight_version is not None)
        )


def segments_after(segments: tuple[Segment, ...], shared: int) -> tuple[Segment, ...]:
    """The segments after the first `shared` tokens, where one of them ends."""
    ends = accumulate((len(segment.token_ids) for segment in segments), initial=0)
    return tuple(segment for at, segment in zip(ends, segments, strict=False) if at >= shared)


def weighed(sequences: Iterable[Sequence], weights: Mapping[str, float]) -> tuple[Sequence, ...]:
    """The sequences with these weights, by their ids; others stay as they are."""
    return tuple(
        replace(sequence, weight=weights[sequence.id]) if sequence.id in weights else sequence
        for sequence in sequences
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RewardPart:
    """A named share of the reward; `turn` None = the whole trajectory."""

    name: str
    value: float
    turn: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something that happened on the way; `data` is JSON-like."""

    kind: str
    turn: int
    data: Mapping[str, Any] = field(default_factory=dict)


_POLICY_ERRORS = (ToolErrorKind.INVALID_ACTION, ToolErrorKind.UNKNOWN_TOOL)
_NO_FAILURE = (ToolErrorKind.NONE, ToolErrorKind.CANCELLED)


@dataclass(frozen=True, slots=True, kw_only=True)
class CallOutcome:
    """The result of one call, as the tool service recorded it."""

    observation: str
    """The whole observation, with media by their names."""
    valid: bool
    parts: tuple[str | BlobRef, ...] = ()
    """Pieces of the observation; empty without media."""
    invalid_reason: str = ""
    done: bool = False
    error: ToolErrorKind = ToolErrorKind.NONE
    session_lost: bool = False
    reward: float | None = None
    metrics: Mapping[str, float] = field(default_factory=dict)
    truncated: bool = False
    isolation: str = ""
    tool: str = ""
    author: Author = Author.TOOL
    """The author of the observation's tokens."""
    token_budget: int = 0
    """Tokens that the observation may have; 0 = the recipe's limit."""
    queued_s: float = 0.0
    """Seconds in the queue, as the service measured them."""
    run_s: float = 0.0
    """Seconds of the run, as the service measured them."""

    @property
    def malformed(self) -> bool:
        """Whether the policy wrote the call wrong: its tool refused it, or no tool got it."""
        return not self.valid or self.error in _POLICY_ERRORS

    @property
    def failed(self) -> bool:
        """Whether the call was well written and its tool failed. A cancelled call did not fail."""
        return not self.malformed and self.error not in _NO_FAILURE


@dataclass(frozen=True, slots=True, kw_only=True)
class CallTimings:
    """Stamps in ns of the engine's monotonic clock; 0 = never, or in an earlier life."""

    stop_read_ns: int = 0
    dispatched_ns: int = 0
    result_ns: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class CallRecord:
    """A tool call and its result."""

    call_id: str
    turn: int
    index: int
    tool: str
    action: str
    outcome: CallOutcome
    timings: CallTimings = field(default_factory=CallTimings)


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionTimings:
    """Stamps of one action in ns of the engine's monotonic clock."""

    turn: int
    asked_ns: int
    """The request for the action was sent; after a resume, the request for the rest of it."""
    acted_ns: int
    """The action was complete."""
    first_ns: int = 0
    """Its first token was read; 0 = unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrajectoryTimings:
    """Times of the parts of a trajectory, in seconds."""

    wall_s: float = 0.0
    generate_s: float = 0.0
    tool_s: float = 0.0
    reward_s: float = 0.0
    open_s: float = 0.0
    clock_s: float = 0.0
    """Unix time of zero on the clock of all stamps, by the attempt's first engine; 0 = unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A question: either `messages` ([{"role", "content"}]) or a raw `prompt`."""

    id: str
    purpose: Purpose = Purpose.TRAIN
    data_source: str = ""
    prompt: str = ""
    messages: tuple[Mapping[str, Any], ...] = ()
    answers: tuple[str, ...] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict)
    sampling: SamplingParams | None = None
    media: tuple[MediaRef, ...] = ()
    name: str = ""
    """Name of the question's task in [tasks]; "" = the recipe has one task."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trajectory:
    """One rollout of one task, complete."""

    id: str
    group_id: str
    task: Task
    sequences: tuple[Sequence, ...]
    status: Status
    stop_reason: StopReason
    index: int = 0
    attempt: int = 0
    calls: tuple[CallRecord, ...] = ()
    events: tuple[Event, ...] = ()
    reward: float = 0.0
    reward_parts: tuple[RewardPart, ...] = ()
    timings: TrajectoryTimings = field(default_factory=TrajectoryTimings)
    action_timings: tuple[ActionTimings, ...] = ()
    masked: bool = False
    tokenizer_hash: str = ""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    anchors: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    """Canonical tool ids by turn: turns with equal ids are compared when credit is assigned."""
    outside_baseline: bool = False
    """The reward does not enter the mean and deviation of its group."""

    @property
    def response_tokens(self) -> int:
        """Tokens that the policy wrote."""
        return sum(len(segment.token_ids) for segment in self.written)

    @property
    def written(self) -> tuple[Segment, ...]:
        """Segments that the policy wrote, without copies."""
        return tuple(segment for segment in self.segments if segment.author is Author.MODEL)

    @property
    def segments(self) -> tuple[Segment, ...]:
        """Segments of all sequences in order, without the copies that a fork inside of this
        trajectory makes."""
        own = zip(self.sequences, self.shared_prefixes, strict=True)
        return tuple(s for q, shared in own for s in segments_after(q.segments, shared))

    @property
    def weights(self) -> dict[str, float]:
        """Weights of sequences other than 1, by their ids."""
        return {q.id: q.weight for q in self.sequences if q.weight != 1}

    @property
    def shared_prefixes(self) -> tuple[int, ...]:
        """Number of tokens at the start of each sequence that are a copy of another one of this
        trajectory. 0 for a branch of another trajectory."""
        known = {q.id for q in self.sequences}
        return tuple((q.fork_offset or 0) if q.parent in known else 0 for q in self.sequences)

    @property
    def turns(self) -> int:
        """Turns that the policy took in any sequence; reward parts and anchors name those."""
        written = (s for q in self.sequences for s in q.segments if s.author is Author.MODEL)
        return max((segment.turn + 1 for segment in written), default=0)

    @property
    def weight_versions(self) -> tuple[WeightVersion, ...]:
        """Versions that wrote in any sequence, without repeats."""
        return tuple(dict.fromkeys(v for s in self.sequences for v in s.weight_versions))

    @property
    def shown_media(self) -> tuple[MediaRef, ...]:
        """Media that tokens of any sequence stand for, in order."""
        return tuple(ref for q in self.sequences for s in q.segments for ref in s.media)


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Trajectories of one task; statistics of a group are those of its members."""

    id: str
    trajectories: tuple[Trajectory, ...]
    sequence_number: int = 0
    content_hash: str = ""
