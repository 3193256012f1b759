"""One reply while it grows, and its events.

Owns the tokens of a reply, their weight versions, the number of tokens that were handed out, and
the end. A state machine without I/O and without a clock: the caller passes steps and times.

Invariants
- A finished reply never grows.
- In the incremental shape the chunks of a reply add up to exactly its tokens, unless it was aborted
  in the queue.
- Totals of a chunk are absolute in both shapes; only its lists are deltas in the incremental one.
- A script that fails ends its reply as an abort with its message.
"""

from __future__ import annotations

from asyncio import Event
from collections.abc import Iterator
from dataclasses import dataclass, field

from bench.scripted import wire
from bench.scripted.types import FinishReason, GenerateRequest, ScriptError, Token, WeightSpan


@dataclass(slots=True, kw_only=True, eq=False)
class Generation:
    """The reply to `request`, read token by token from `source`."""

    request: GenerateRequest
    source: Iterator[Token]
    delays: Iterator[float]
    eos: frozenset[int]
    """Ids that end the reply, with the request's stop ids, unless the request ignores them."""
    started: float
    cached_tokens: int
    retractions: int = 0
    abort_requested: bool = False
    tokens: list[Token] = field(default_factory=list)
    finish: FinishReason | None = None
    changed: Event = field(default_factory=Event)
    """Set while there is something to take."""
    _next: Token | None = None
    _taken: int = 0
    _queue_abort: bool = False
    _spans: list[tuple[str, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        # ignore_eos switches the request's own stop ids off too, as in the real server.
        self.eos = (
            frozenset() if self.request.ignore_eos else self.request.stop_token_ids | self.eos
        )
        if self.request.max_new_tokens == 0:
            self._end(FinishReason("length", length=0))
        elif self._advance() is None and self.finish is None:
            self._end(FinishReason("stop"))

    @property
    def spans(self) -> list[WeightSpan]:
        """The weight versions of all tokens so far, in order and without gaps."""
        spans: list[WeightSpan] = []
        start = 0
        for version, end in self._spans:
            spans.append(WeightSpan(version=version, start=start, end=end))
            start = end
        return spans

    def untaken(self) -> list[tuple[str, list[int]]]:
        """Ids that the next `take` hands out for the first time, with their weight version."""
        found = []
        for span in self.spans:
            tokens = self.tokens[max(span.start, self._taken) : span.end]
            if tokens:
                found.append((span.version, [token.id for token in tokens]))
        return found

    def grow(self, count: int, version: str) -> None:
        """Sample up to `count` tokens under the weights `version`, to the end at most."""
        for _ in range(count):
            if self.finish is not None or self._next is None:
                break
            token = self._next
            self.tokens.append(token)
            self._advance()
            if self.finish is not None:
                break
            if token.id in self.eos or self._next is None:
                self._end(FinishReason("stop", matched=token.id))
            elif len(self.tokens) >= self.request.max_new_tokens:
                self._end(FinishReason("length", length=self.request.max_new_tokens))
        total = len(self.tokens)
        if total:
            if self._spans and self._spans[-1][0] == version:
                self._spans[-1] = (version, total)
            else:
                self._spans.append((version, total))
        pending = total - self._taken
        if pending and (self._taken == 0 or pending >= self.request.stream_interval):
            self.changed.set()

    def abort(self, version: str) -> None:
        """End a running reply: one more token comes out first, as of a step already under way."""
        if self.finish is None:
            self.grow(1, version)
            self._end(FinishReason("abort", message="Aborted"))

    def abort_in_queue(self) -> None:
        """End a reply that was sent back to the queue."""
        if self.finish is None:
            self._queue_abort = True
            self._end(FinishReason("abort", message="Abort in waiting queue"))

    def take(self, *, incremental: bool, weight_version: str, now: float, wall: float) -> bytes:
        """The event for all tokens since the last take; the final one once the reply is finished.

        `now` is on the clock of `started`, `wall` is seconds since the epoch.
        """
        self.changed.clear()
        first = self._taken if incremental else 0
        sent_at = wall if self._taken == 0 else None
        self._taken = len(self.tokens)
        return wire.event(self._body(first, weight_version, now, sent_at, incremental=incremental))

    def whole(self, *, weight_version: str, now: float, wall: float) -> dict[str, object]:
        """The answer to a request that does not stream."""
        return self._body(0, weight_version, now, wall, incremental=False)

    def _body(
        self, first: int, version: str, now: float, sent_at: float | None, *, incremental: bool
    ) -> dict[str, object]:
        """The answer with the tokens from `first` on. sent_at: seconds since the epoch, in the
        first event of a stream only."""
        if self._queue_abort:
            return self._queue_abort_body(version, now, incremental=incremental)
        tokens, total, request = self.tokens[first:], len(self.tokens), self.request
        cached = self.cached_tokens
        meta: dict[str, object] = {
            "id": request.rid,
            "finish_reason": None,
            "prompt_tokens": len(request.prompt),
            "weight_version": version,
            "num_retractions": self.retractions,
            **wire.logprobs_body(tokens, total, request),
            "reasoning_tokens": 0,
            "completion_tokens": total,
            "cached_tokens": cached,
            "cached_tokens_details": {"device": cached, "host": 0} if cached else None,
            "dp_rank": None,
        }
        if sent_at is not None:
            meta["response_sent_to_client_ts"] = sent_at
        body: dict[str, object] = {"output_ids": [token.id for token in tokens], "meta_info": meta}
        if request.return_prompt_token_ids:
            body["prompt_token_ids"] = list(request.prompt)
        if self.finish is not None:
            meta["finish_reason"] = wire.finish_body(self.finish)
            meta |= self._versions(version, now)
        return body

    def _queue_abort_body(
        self, version: str, now: float, *, incremental: bool
    ) -> dict[str, object]:
        """The last event of a reply that was aborted in the queue.

        The real server builds it in another way: without prompt_tokens, with all log-probs, and in
        the incremental shape with the last id *again*. A client that appends it has one token too
        many.
        """
        tokens, request = self.tokens, self.request
        meta = {
            "id": request.rid,
            "finish_reason": {"type": "abort", "message": "Abort in waiting queue"},
            **self._versions(version, now),
            "completion_tokens": len(tokens),
            **wire.logprobs_body(tokens, len(tokens), request),
        }
        shown = tokens[-1:] if incremental and request.stream else tokens
        return {"text": "", "output_ids": [token.id for token in shown], "meta_info": meta}

    def _versions(self, version: str, now: float) -> dict[str, object]:
        """The part of meta_info of a last event with weight versions and latency."""
        spans = self.spans or [WeightSpan(version=version, start=0, end=0)]
        return {
            "weight_version": spans[-1].version,
            "e2e_latency": now - self.started,
            "weight_versions": [
                {"version": span.version, "start": span.start, "end": span.end} for span in spans
            ],
        }

    def _advance(self) -> Token | None:
        """Reads the next token early: only its absence marks the last token of a script."""
        try:
            self._next = next(self.source, None)
        except ScriptError as error:
            self._next = None
            self._end(FinishReason("abort", message=str(error)))
        return self._next

    def _end(self, reason: FinishReason) -> None:
        self.finish = reason
        self.changed.set()
