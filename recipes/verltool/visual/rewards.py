"""What a group of answers about pictures is worth (VerlTool, arXiv 2509.01055, equations 9 to 11).

    reward = accuracy + alpha * max(H - RaPR, 0) * [looked] + beta * min(N - n_vo, 0)

RaPR, the rate of pixel reasoning, is the share of a question's rollouts that looked closer at
least once, and n_vo how often this one did. So a rollout that looks is paid while few of the group
do, and pays for looks beyond the first N. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import Field

from engine.api import Options


class Looking(Options):
    """The paper's values; a weight of 0 takes its term away."""

    rate: float = Field(0.3, ge=0, le=1)
    """H, a share of a group."""
    free: int = Field(1, ge=0)
    """N, looks that cost nothing."""
    curiosity: float = Field(0.5, ge=0)
    """Alpha."""
    cost: float = Field(0.05, ge=0)
    """Beta."""


def looking_rate(looks: Sequence[int]) -> float:
    """RaPR of a group. looks: of every rollout that was asked for, also of those that failed."""
    return sum(count > 0 for count in looks) / len(looks) if looks else 0.0


def looking_reward(count: int, rate: float, looking: Looking) -> tuple[float, float]:
    """(bonus, cost) of a rollout that looked `count` times in a group of that rate; the second is 0
    or less."""
    bonus = looking.curiosity * max(looking.rate - rate, 0.0) if count else 0.0
    return bonus, looking.cost * min(looking.free - count, 0)
