"""What a collection may cost, what it has cost, and how long it will take; pure."""

from __future__ import annotations

from dataclasses import dataclass

MILLION = 1e6


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """Of a million tokens, in whatever currency; None = no cost is told."""

    read: float | None = None
    written: float | None = None

    @property
    def known(self) -> bool:
        return self.read is not None or self.written is not None

    def cost(self, read: int, written: int) -> float | None:
        """Of so many tokens."""
        if not self.known:
            return None
        paid = read * (self.read or 0.0) + written * (self.written or 0.0)
        return float(f"{paid / MILLION:.9g}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """In all lives. tasks: that were rolled out and decided. tokens: that the policy wrote.
    seconds: of rolling out."""

    tasks: int = 0
    tokens: int = 0
    seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """Of all lives together; None = no bound. tokens: that the policy writes. seconds: of rolling
    out."""

    tokens: int | None = None
    seconds: float | None = None

    def has_room(self, spent: Spent, in_hand: int) -> bool:
        """For one more task beside those in hand, if all write as much as tasks have until now. The
        first ones are begun whatever they may cost."""
        if self.tokens is None:
            return True
        if not spent.tasks:
            return spent.tokens < self.tokens
        return spent.tokens + (in_hand + 1) * spent.tokens / spent.tasks <= self.tokens

    def seconds_left(self, spent: Spent) -> float | None:
        return None if self.seconds is None else self.seconds - spent.seconds


def seconds_to_go(now: Spent, begun: Spent, tasks: int, budget: Budget) -> float | None:
    """Until all tasks are decided or a budget is spent, whichever is first, at the pace since
    `begun`; None where nothing tells."""
    life = now.seconds - begun.seconds
    ends = []
    if (left := budget.seconds_left(now)) is not None:
        ends.append(left)
    if life > 0 and now.tasks > begun.tasks:
        ends.append((tasks - now.tasks) * life / (now.tasks - begun.tasks))
    if life > 0 and now.tokens > begun.tokens and budget.tokens is not None:
        ends.append((budget.tokens - now.tokens) * life / (now.tokens - begun.tokens))
    return max(0.0, min(ends)) if ends else None
