"""How the agents of a run talk: calls, tokens, pauses. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import exp
from random import Random

ROOM = 4096
"""Tokens that the context has beyond the longest conversation that is planned."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """One agent's conversation."""

    calls: int
    first: int
    """Tokens of the first prompt, about."""
    grows: int
    """Tokens of each later message, about."""
    replies: tuple[int, ...]
    """Tokens of each completion."""
    sub_calls: int
    """Calls of a sub-agent in the middle, under another system message; 0 = no sub-agent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """A kind of load."""

    name: str
    what: str
    agents: int
    calls: int
    """Calls of an agent: all of them, or the median if `spread` is above 0."""
    context: int
    """Tokens at the end of a conversation of so many calls."""
    reply: int
    """Tokens of a completion; the median if `spread` is above 0."""
    grows: int
    """Tokens of a message between two calls."""
    rate: float
    """Calls a second of all agents together; 0 = all at once, without pauses."""
    tokens_per_s: float
    """Pace of the sampler."""
    spread: float = 0.0
    """Sigma of the lognormal draws of calls and completions."""
    sub_agents: float = 0.0
    """Share of agents with a sub-agent."""

    @property
    def longest(self) -> int:
        """Tokens that the context must have room for."""
        return max(one.first + sum(one.replies) + one.calls * (one.grows + 8) for one in self.all())

    def all(self, seed: int = 0) -> list[Session]:
        """The conversations of all agents."""
        dice = Random(f"traffic {self.name} {seed}")
        return [self._session(dice) for _ in range(self.agents)]

    def _session(self, dice: Random) -> Session:
        def drawn(median: int, most: int) -> int:
            return max(1, min(most, round(median * exp(self.spread * dice.gauss(0, 1)))))

        calls = drawn(self.calls, 3 * self.calls)
        replies = tuple(drawn(self.reply, 4 * self.reply) for _ in range(calls))
        return Session(
            calls=calls,
            first=max(64, self.context - self.calls * (self.grows + self.reply)),
            grows=self.grows,
            replies=replies,
            sub_calls=max(1, calls // 4) if dice.random() < self.sub_agents else 0,
        )


TRAFFIC: Mapping[str, Traffic] = {
    one.name: one
    for one in (
        Traffic(
            name="plain",
            what="32 calls each in a context of 33,000 tokens",
            agents=64,
            calls=32,
            context=33_000,
            reply=48,
            grows=48,
            rate=12.0,
            tokens_per_s=200.0,
        ),
        Traffic(
            name="reported",
            what="a median of 43 calls, 142,000 tokens of context, completions of 444 tokens, "
            "sub-agents in 44 % of all",
            agents=8,
            calls=43,
            context=142_000,
            reply=444,
            grows=2_400,
            rate=4.0,
            tokens_per_s=1_000.0,
            spread=0.5,
            sub_agents=0.44,
        ),
        Traffic(
            name="connections",
            what="1,024 connections at once, each with a new prompt of 128,000 tokens",
            agents=1_024,
            calls=1,
            context=128_000,
            reply=16,
            grows=0,
            rate=0.0,
            tokens_per_s=200.0,
        ),
    )
}
