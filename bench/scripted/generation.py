"""One reply while it grows.

Owns the tokens of a reply, which of them were handed out, the weight versions they were sampled
under, and its end. A state machine without I/O and without a clock: whoever drives it says when a
step is due and what time it is. Invariants: a finished reply never grows; in the incremental shape
the chunks of a reply that was not aborted in the queue add up to exactly its tokens. A script that
fails ends its reply as an abort that says so.
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
        if self._queue_abort:
            return wire.queue_abort_body(
                request=self.request,
                tokens=self.tokens,
                incremental=incremental,
                weight_version=version,
                spans=self.spans,
                e2e_latency=now - self.started,
            )
        body = wire.chunk_body(
            request=self.request,
            tokens=self.tokens[first:] if first else self.tokens,
            total=len(self.tokens),
            weight_version=version,
            cached_tokens=self.cached_tokens,
            num_retractions=self.retractions,
            sent_at=sent_at,
        )
        if self.finish is None:
            return body
        return wire.finish(
            body,
            reason=self.finish,
            spans=self.spans,
            weight_version=version,
            e2e_latency=now - self.started,
        )

    def _advance(self) -> Token | None:
        """Read one token ahead: a script's last token is known only by what follows it."""
        try:
            self._next = next(self.source, None)
        except ScriptError as error:
            self._next = None
            self._end(FinishReason("abort", message=str(error)))
        return self._next

    def _end(self, reason: FinishReason) -> None:
        self.finish = reason
        self.changed.set()
