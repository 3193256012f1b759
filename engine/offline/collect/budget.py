"""The budget of a collection, what is spent of it, and the time that is left; pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Spending:
    """What a collection has used, restarts included."""

    tasks: int = 0
    """Tasks that were rolled out and decided."""
    tokens: int = 0
    """Tokens that the policy wrote."""
    seconds: float = 0.0
    """Time of rolling out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """Bounds of a collection, restarts included; None = no bound."""

    tokens: int | None = None
    """Most tokens that the policy writes."""
    seconds: float | None = None
    """Longest time of rolling out."""

    def has_room(self, spent: Spending, in_hand: int) -> bool:
        """Whether one more task fits beside `in_hand` others, at the mean cost of tasks so far.

        The cost of the first tasks is unknown, so they always fit.
        """
        if self.tokens is None:
            return True
        if not spent.tasks:
            return spent.tokens < self.tokens
        return spent.tokens + (in_hand + 1) * spent.tokens / spent.tasks <= self.tokens

    def seconds_left(self, spent: Spending) -> float | None:
        return None if self.seconds is None else self.seconds - spent.seconds


def seconds_remaining(now: Spending, before: Spending, tasks: int, budget: Budget) -> float | None:
    """Seconds until all tasks are decided or a budget is spent, at the pace since `before`.

    None while no pace is known.
    """
    life = now.seconds - before.seconds
    ends = []
    if (left := budget.seconds_left(now)) is not None:
        ends.append(left)
    if life > 0 and now.tasks > before.tasks:
        ends.append((tasks - now.tasks) * life / (now.tasks - before.tasks))
    if life > 0 and now.tokens > before.tokens and budget.tokens is not None:
        ends.append((budget.tokens - now.tokens) * life / (now.tokens - before.tokens))
    return max(0.0, min(ends)) if ends else None
