"""What a group of answers about pictures is worth (VerlTool, arXiv 2509.01055, equations 9 to 11).

    reward = accuracy + alpha * max(H - RaPR, 0) * [looked] + beta * min(N - n_vo, 0)

RaPR, the rate of pixel reasoning, is the share of a question's rollouts that looked closer at
least once, and n_vo how often this one did. So whoever looks is paid for it while few of the group
do, and pays for looks beyond the first N. Pure.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Looking:
    """The paper's values. rate: H. free: N, looks that cost nothing. curiosity: alpha. cost:
    beta. ValueError for values that are out of bounds."""

    rate: float = 0.3
    free: int = 1
    curiosity: float = 0.5
    cost: float = 0.05

    def __post_init__(self) -> None:
        if not 0 <= self.rate <= 1:
            raise ValueError(f"rate = {self.rate}: write a share of a group, from 0 to 1")
        if self.free < 0:
            raise ValueError(f"free = {self.free}: write how many looks cost nothing, from 0 on")
        if not all(0 <= weight < math.inf for weight in (self.curiosity, self.cost)):
            raise ValueError("curiosity and cost are weights, from 0 on: 0 takes a term away")


PAPER = Looking()


def looking_rate(looks: Sequence[int]) -> float:
    """RaPR of a group. looks: of every rollout that was asked for, also of those that failed."""
    return sum(count > 0 for count in looks) / len(looks) if looks else 0.0


def looking_reward(count: int, rate: float, looking: Looking) -> tuple[float, float]:
    """(bonus, cost) of a rollout that looked `count` times in a group of that rate; the second is 0
    or less."""
    bonus = looking.curiosity * max(looking.rate - rate, 0.0) if count else 0.0
    return bonus, looking.cost * min(looking.free - count, 0)
