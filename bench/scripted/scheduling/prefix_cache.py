"""A server's prefix cache, counted in tokens: running requests hold theirs, others can be evicted.

A conversation's prefix is one entry. Entries share nothing, although the real cache shares prompts.
Pure: no clock, no ids.

Invariants
- `held` + `evictable` never exceed `capacity`, unless one request alone is larger.
- A running request's tokens are never evicted.
- The least recently released entry loses tokens first, from its end: the real tree evicts leaves.
"""

from __future__ import annotations

from collections import OrderedDict


class PrefixCache:
    """The entries of one server, by conversation."""

    def __init__(self, capacity: int) -> None:
        """capacity: in tokens."""
        self.capacity = capacity
        self.held = 0
        """Tokens of running requests."""
        self.evictable = 0
        """Tokens of conversations that no request runs."""
        self._running: dict[str, int] = {}
        self._idle: OrderedDict[str, int] = OrderedDict()

    @property
    def usage(self) -> float:
        """Share of the capacity that running requests hold."""
        return self.held / self.capacity

    def cached(self, conversation: str) -> int:
        """Tokens of the conversation's prefix that need no computation."""
        return self._running.get(conversation) or self._idle.get(conversation, 0)

    def take(self, conversation: str, tokens: int) -> bool:
        """Lets a request hold `tokens`, its cached prefix included. False: there is no room."""
        if conversation in self._running:
            return self.grow(conversation, max(0, tokens - self._running[conversation]))
        if self.held + tokens > self.capacity and self._running:
            return False
        self.evictable -= self._idle.pop(conversation, 0)
        self._running[conversation] = tokens
        self.held += tokens
        self._evict()
        return True

    def grow(self, conversation: str, tokens: int) -> bool:
        """Lets a running request hold `tokens` more. False: there is no room."""
        if self.held + tokens > self.capacity and len(self._running) > 1:
            return False
        self._running[conversation] += tokens
        self.held += tokens
        self._evict()
        return True

    def release(self, conversation: str) -> None:
        """The request runs no more. Its tokens stay until others need the room."""
        tokens = self._running.pop(conversation, 0)
        self.held -= tokens
        self.evictable += tokens
        if tokens:
            self._idle[conversation] = tokens
        self._evict()

    def flush(self) -> None:
        """Drops the prefixes that no request holds."""
        self._idle.clear()
        self.evictable = 0

    def _evict(self) -> None:
        while self.evictable and (over := self.held + self.evictable - self.capacity) > 0:
            conversation, tokens = next(iter(self._idle.items()))
            gone = min(over, tokens)
            self.evictable -= gone
            if gone == tokens:
                del self._idle[conversation]
            else:
                self._idle[conversation] = tokens - gone
