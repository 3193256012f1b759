"""The stream of SGLang 0.5.13 and newer from /generate: bytes to events, events to checked chunks.

Pure. It reads both shapes of the stream: deltas (`--incremental-streaming-output`) and the
cumulative default.

Invariants
- A chunk holds only what may be recorded. Token ids are whole numbers inside the vocabulary, and
  log-probs are finite and at most 0.
- A stream brings at most as many tokens as requested, and weight spans lie inside the tokens. If
  top log-probs were requested, every token has some.
- Anything else is a WireError, the server's fault. Nothing is guessed, rounded or cut to fit.
- An event takes bounded memory, and the search for its end linear time.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import pairwise
from math import inf
from typing import Annotated, Any, Generic, Literal, TypeVar

import msgspec

from toolwright.model_api.errors import WireError as WireError
from toolwright.model_api.event_stream import DONE as DONE
from toolwright.types import FinishKind, FinishReason

MAX_EVENT_BYTES = 16 * 2**20
"""The largest valid event repeats a whole action with its log-probs, about 45 bytes per token.
There is room for 370,000 tokens, more than any context that the engine serves."""
MAX_EMPTY_EVENTS = 1000
"""Most events in a row without a token. A correct server sends one, its last. So a stream without
progress fails long before the trajectory's limit."""
LOGPROB_TOLERANCE = 1e-3
"""Rounding lets a log-probability of 0 come out a little above it."""
LEAST_LOGPROB = -1e4
"""A token drawn by its float32 probability has at least -104, by logits some hundred less."""


class Chunk(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What one event added."""

    token_ids: array[int]
    """[n]."""
    logprobs: array[float]
    """[n]."""
    weight_version: str
    finish: FinishReason | None
    weight_spans: tuple[tuple[str, int, int], ...] = ()
    """(version, start, end) in the tokens of the whole request."""
    prompt_tokens: int = 0
    """Prompt tokens that the server counted; 0 if it did not report them."""
    prompt_ids: Sequence[int] = ()
    """Ids of these tokens, if the request wanted them."""
    top_logprobs: Sequence[Sequence[float]] = ()
    """[n] lists of the likeliest tokens at each position; empty if the request wanted none."""
    cached_tokens: int | None = None
    """Prompt tokens that the prefix cache had; None if the server did not report them."""
    retractions: int = 0
    """Times that the server sent the request back to its queue so far."""


_Version = Annotated[str, msgspec.Meta(max_length=256)]
_Count = Annotated[int, msgspec.Meta(ge=0)]
_Logprob = Annotated[float, msgspec.Meta(ge=LEAST_LOGPROB, le=LOGPROB_TOLERANCE)]
_Top = Annotated[float, msgspec.Meta(le=LOGPROB_TOLERANCE)] | None
"""Log-prob of a token that may be impossible: float32's least number, or null."""
_Token = TypeVar("_Token")
"""A whole number inside the policy's vocabulary."""


class _Reason(msgspec.Struct, Generic[_Token], gc=False):
    type: Literal["stop", "length", "abort"]
    matched: _Token | str | list[_Token] | None = None


class _Span(msgspec.Struct, gc=False):
    version: _Version
    start: _Count
    end: _Count


class _Meta(msgspec.Struct, Generic[_Token], gc=False):
    completion_tokens: int
    finish_reason: _Reason[_Token] | None
    output_token_logprobs: list[tuple[_Logprob, _Token, str | None]] | None = None
    output_top_logprobs: list[list[tuple[_Top, int, str | None]] | None] | None = None
    weight_version: _Version | None = None
    weight_versions: list[_Span] | None = None
    prompt_tokens: _Count | None = None
    cached_tokens: _Count | None = None
    num_retractions: _Count | None = None


class _Event(msgspec.Struct, Generic[_Token], gc=False):
    output_ids: list[_Token] | None = None
    meta_info: _Meta[_Token] | None = None
    prompt_token_ids: list[_Token] | None = None
    error: Any = None


@lru_cache(maxsize=8)
def _decoder(vocab_size: int) -> msgspec.json.Decoder[_Event[int]]:
    """The decoder. Checks that msgspec makes while it decodes cost nothing extra."""
    token = Annotated[int, msgspec.Meta(ge=0, lt=vocab_size)]
    return msgspec.json.Decoder(_Event[token])


class EventSplitter:
    """Splits the bytes of a server-sent event stream into payloads; holds at most one partial
    event."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._rest = bytearray()

    def feed(self, data: bytes) -> list[bytes]:
        """Payloads of the events that `data` completes, `[DONE]` included.

        Raises WireError if an event grows beyond the limit.
        """
        payloads: list[bytes] = []
        start = 0
        if self._rest:
            searched = len(self._rest) - 1  # the first half of the end may be there already
            self._rest += data[: self._limit + 1]
            end = self._rest.find(b"\n\n", searched)
            if end < 0:
                self._check(len(self._rest))
                return payloads
            start = end + 2 - (searched + 1)
            self._add(payloads, bytes(self._rest[:end]))
            self._rest = bytearray()
        while (end := data.find(b"\n\n", start)) >= 0:
            self._add(payloads, data[start:end])
            start = end + 2
        if start < len(data):
            self._check(len(data) - start)
            self._rest += data[start:]
        return payloads

    def _add(self, payloads: list[bytes], event: bytes) -> None:
        self._check(len(event))
        event = event.strip()
        if event.startswith(b"data:"):
            payloads.append(event[5:].strip())

    def _check(self, size: int) -> None:
        if size > self._limit:
            raise WireError(f"an event of more than {self._limit} bytes")


class ChunkReader:
    """Turns events of one request into chunks and counts its tokens."""

    def __init__(
        self, *, incremental: bool, vocab_size: int, max_new_tokens: int, top_logprobs: int = 0
    ) -> None:
        """top_logprobs: how many were requested."""
        self._incremental = incremental
        self._top_logprobs = top_logprobs
        self._decode = _decoder(vocab_size).decode
        self._max_new_tokens = max_new_tokens
        self._empty = 0
        self.received = 0

    def read(self, payload: bytes) -> Chunk:
        """The chunk that the event adds. Raises WireError for an error event, and for everything
        that the module's invariants exclude."""
        try:
            event = self._decode(payload)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise WireError(f"not an event of /generate ({error}): {payload[:300]!r}") from error
        if event.error is not None:
            raise _error_event(event.error)
        meta, token_ids = event.meta_info, event.output_ids
        if meta is None or token_ids is None:
            raise WireError(f"event lacks meta_info or output_ids: {payload[:300]!r}")
        pairs = meta.output_token_logprobs or []
        tops = (meta.output_top_logprobs or []) if self._top_logprobs else []
        reason = meta.finish_reason
        if (
            reason is not None
            and reason.type == "abort"
            and meta.completion_tokens == self.received
        ):
            # A request that was aborted while a pause had it in the queue ends with its last token
            # and all its log-probs once more.
            token_ids, pairs, tops = [], [], []
        elif not self._incremental:
            token_ids, pairs = token_ids[self.received :], pairs[self.received :]
            tops = tops[self.received :]
        if len(pairs) != len(token_ids):
            raise WireError(f"{len(token_ids)} tokens came with {len(pairs)} log-probs")
        values, owners, _ = zip(*pairs, strict=True) if pairs else ((), (), ())
        if owners != tuple(token_ids):
            raise WireError(f"the log-probs are not those of the tokens: {payload[:300]!r}")
        if pairs and max(values) > 0:
            values = tuple(min(value, 0.0) for value in values)
        self._count(len(token_ids), meta.completion_tokens, finished=reason is not None)
        return Chunk(
            token_ids=array("i", token_ids),
            logprobs=array("f", values),
            weight_version=meta.weight_version or "",
            finish=None if reason is None else _finish(reason),
            weight_spans=self._spans(meta.weight_versions) if meta.weight_versions else (),
            prompt_tokens=meta.prompt_tokens or 0,
            prompt_ids=event.prompt_token_ids or (),
            cached_tokens=meta.cached_tokens,
            retractions=meta.num_retractions or 0,
            top_logprobs=self._tops(tops, len(token_ids)) if self._top_logprobs else (),
        )

    def _tops(
        self, rows: Sequence[Sequence[tuple[float | None, int, str | None]] | None], tokens: int
    ) -> tuple[tuple[float, ...], ...]:
        if len(rows) != tokens:
            raise WireError(f"{tokens} tokens came with top log-probs for {len(rows)}")
        if any(not row or len(row) > self._top_logprobs for row in rows):
            raise WireError(f"a token came without 1 to {self._top_logprobs} top log-probs")
        return tuple(
            tuple(-inf if one is None else min(one, 0.0) for one, _, _ in row or ()) for row in rows
        )

    def _count(self, fresh: int, counted: int, *, finished: bool) -> None:
        self.received += fresh
        if self.received != counted:
            raise WireError(
                f"received {self.received} tokens, the server counted {counted}; "
                "does /server_info report the true stream shape?"
            )
        if self.received > self._max_new_tokens:
            raise WireError(f"{self.received} tokens came, {self._max_new_tokens} were the limit")
        self._empty = 0 if fresh or finished else self._empty + 1
        if self._empty > MAX_EMPTY_EVENTS:
            raise WireError(f"{self._empty} events in a row brought no token")

    def _spans(self, spans: Sequence[_Span]) -> tuple[tuple[str, int, int], ...]:
        found = tuple((span.version, span.start, span.end) for span in spans)
        if any(start > end or end > self.received for _, start, end in found) or any(
            after[1] < before[2] for before, after in pairwise(found)
        ):
            raise WireError(f"weight spans {found[:4]} do not fit {self.received} tokens")
        return found


def _finish(reason: _Reason[int]) -> FinishReason:
    if reason.type == "length":
        return FinishReason(kind=FinishKind.LENGTH)
    if reason.type == "abort":
        return FinishReason(kind=FinishKind.ABORT)
    matched = reason.matched
    if isinstance(matched, str):
        return FinishReason(kind=FinishKind.STOP, matched_text=matched)
    if isinstance(matched, list):
        matched = matched[-1] if matched else None
    return FinishReason(kind=FinishKind.STOP, matched_token=matched)


def _error_event(error: Any) -> WireError:
    if isinstance(error, Mapping):
        return WireError(
            str(error.get("message", error))[:1000], retryable=bool(error.get("retryable", True))
        )
    return WireError(str(error)[:1000])
