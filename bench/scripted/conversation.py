"""The conversation and the turn of a request.

Owns the memory that spans requests: the turn of each conversation, its unfinished reply, and the
ids that a prefix cache would hold. The number of conversations is bounded; the least recently used
one is dropped first. Knows neither time nor the wire's bytes.

Invariants
- A turn ends when its final event was handed to the client, never before.
- A request may repeat the ids of an unfinished request and the first m tokens of its reply. It
  continues that reply at token m, under any rid.
- A request that repeats all of a reply which ended at its length continues it in the same turn.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field

from bench.scripted.types import GenerateRequest, ScriptRequest, Token

MAX_CONVERSATIONS = 4096


@dataclass(slots=True, kw_only=True)
class _Conversation:
    turn: int = 0
    opening: ScriptRequest | None = None
    said: list[Token] = field(default_factory=list)
    live: list[Token] = field(default_factory=list)
    cut: tuple[ScriptRequest, list[Token]] | None = None
    """The last reply, where it ended at its length."""
    cached: tuple[int, ...] = ()
    cached_by: str = ""
    """Adapter that computed them: each has a prefix cache of its own."""

    def spoken(self) -> list[Token]:
        return self.said + self.live


@dataclass(frozen=True, slots=True, kw_only=True)
class Opening:
    """How to serve a request: ask the script `script_request`, drop the first `skip` tokens."""

    script_request: ScriptRequest
    skip: int
    cached_tokens: int


class Conversations:
    """All conversations this server remembers."""

    def __init__(self, limit: int = MAX_CONVERSATIONS) -> None:
        self._limit = limit
        self._known: OrderedDict[str, _Conversation] = OrderedDict()

    def __len__(self) -> int:
        return len(self._known)

    def open(self, request: GenerateRequest) -> Opening:
        """Place the request in its conversation."""
        known = self._known.setdefault(request.conversation, _Conversation())
        self._known.move_to_end(request.conversation)
        if len(self._known) > self._limit:
            self._known.popitem(last=False)
        cached = _cached(known, request)
        _take_up(known, request.input_ids)
        skip = _resumed_at(known, request.input_ids)
        if skip is None or known.opening is None:
            skip = 0
            known.opening = ScriptRequest(
                rid=request.rid,
                conversation=request.conversation,
                turn=known.turn,
                input_ids=request.input_ids,
                params=request.params,
                images=request.images,
            )
        known.said = known.spoken()[:skip]
        known.live = []
        return Opening(script_request=known.opening, skip=skip, cached_tokens=cached)

    def attach(self, conversation: str, live: list[Token]) -> None:
        """Name the growing token list of the conversation's reply in flight."""
        if (known := self._known.get(conversation)) is not None:
            known.live = live

    def close(self, request: GenerateRequest, reply: list[Token], *, cut: bool = False) -> None:
        """The final event of the reply was sent: the conversation is one turn on. `cut`: the reply
        ended at its length."""
        if (known := self._known.get(request.conversation)) is not None:
            known.turn += 1
            known.cut = (known.opening, known.said + reply) if cut and known.opening else None
            known.opening = None
            known.said, known.live = [], []
            known.cached = request.prompt + tuple(token.id for token in reply)
            known.cached_by = request.adapter

    def forget_cache(self) -> None:
        """What flushing the prefix cache does; the turns stay."""
        for known in self._known.values():
            known.cached = ()


def _cached(known: _Conversation, request: GenerateRequest) -> int:
    """Tokens of the prompt that the prefix cache holds; at least one is always computed."""
    held, ids = known.cached, request.prompt
    if not held or ids[: len(held)] != held or known.cached_by != request.adapter:
        return 0
    return min(len(held), len(ids) - 1)


def _take_up(known: _Conversation, ids: tuple[int, ...]) -> None:
    """Opens a reply again that ended at its length, where the request goes on from there."""
    cut, known.cut = known.cut, None
    if cut is not None and known.opening is None:
        opening, spoken = cut
        if ids == opening.input_ids + tuple(token.id for token in spoken):
            known.opening, known.said = opening, spoken
            known.turn -= 1


def _resumed_at(known: _Conversation, ids: tuple[int, ...]) -> int | None:
    if known.opening is None:
        return None
    base = known.opening.input_ids
    extra = ids[len(base) :]
    if ids[: len(base)] != base or len(extra) > len(known.said) + len(known.live):
        return None
    spoken = known.spoken()
    if any(said.id != sent for said, sent in zip(spoken, extra, strict=False)):
        return None
    return len(extra)
