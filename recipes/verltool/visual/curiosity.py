"""The group hook: what looking closer is worth, which depends on how many of the group did.

Invariants
- The rate is over every rollout that was asked for: one that infrastructure ended stands in the
  denominator, and in the numerator where it had looked. It gets no part itself.
- If no rollout looked, no rollout gets anything. The hook keeps no state: running twice is safe.
"""

from __future__ import annotations

from collections.abc import Sequence

from engine.api import Score
from toolwright.types import Status, Trajectory

from .looks import TOOL, looks
from .rewards import Looking, looking_rate, looking_reward


class Curiosity(Looking):
    """The group hook, with its options. Parts: `curiosity`, and `looking`, which is 0 or less."""

    tool: str = TOOL
    """Name of the image tool."""

    async def __call__(self, group: Sequence[Trajectory]) -> list[Score | None]:
        counts = [len(looks(trajectory, self.tool)) for trajectory in group]
        rate = looking_rate(counts)
        return [
            None if one.status is Status.ERRORED else self._score(count, rate)
            for one, count in zip(group, counts, strict=True)
        ]

    def _score(self, count: int, rate: float) -> Score:
        bonus, cost = looking_reward(count, rate, self)
        return Score.of({"curiosity": bonus, "looking": cost}, measured={"rapr": rate})
