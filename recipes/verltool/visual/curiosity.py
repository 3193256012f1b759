"""The group hook: what looking closer is worth, which depends on how many of the group did.

Invariants
- The rate is over every rollout that was asked for: one that infrastructure ended stands in the
  denominator, and in the numerator where it had looked. It gets no part itself.
- Where nobody looked nobody gets anything. The hook keeps no state: running twice is safe.
"""

from __future__ import annotations

from collections.abc import Sequence

from engine.api import Score
from toolwright.types import Event, RewardPart, Status, Trajectory

from .looks import TOOL, looks
from .rewards import PAPER, Looking, looking_rate, looking_reward


class Curiosity:
    """Options: `rate` (H), `free` (N), `curiosity` (alpha) and `cost` (beta) of the paper, and
    `tool`, the name of the image tool. Parts: `curiosity`, and `looking`, which is 0 or less."""

    def __init__(
        self,
        *,
        rate: float = PAPER.rate,
        free: int = PAPER.free,
        curiosity: float = PAPER.curiosity,
        cost: float = PAPER.cost,
        tool: str = TOOL,
    ) -> None:
        """ValueError for values that are out of bounds."""
        self._looking = Looking(rate=rate, free=free, curiosity=curiosity, cost=cost)
        self._tool = tool

    async def __call__(self, group: Sequence[Trajectory]) -> list[Score | None]:
        counts = [len(looks(trajectory, self._tool)) for trajectory in group]
        rate = looking_rate(counts)
        return [
            None if one.status is Status.ERRORED else self._score(count, rate)
            for one, count in zip(group, counts, strict=True)
        ]

    def _score(self, count: int, rate: float) -> Score:
        bonus, cost = looking_reward(count, rate, self._looking)
        parts = [
            RewardPart(name="curiosity", value=bonus),
            RewardPart(name="looking", value=cost or 0.0),
        ]
        return Score(parts=parts, events=[Event(kind="measured", turn=0, data={"rapr": rate})])
