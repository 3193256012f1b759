"""What the record says a trajectory and its turns earned, beside the rows that learn from it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from learner.training.batch import Row
from toolwright.credit.turns import turn_rewards
from toolwright.types import Group, Trajectory


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """A trajectory of a group. rows: places of its rows in the batch, in the sequences' order; a
    masked trajectory has none, and may still be what others are compared with."""

    group: str
    trajectory: Trajectory
    rows: tuple[int, ...]

    @property
    def in_baseline(self) -> bool:
        """Others are compared with it."""
        return not self.trajectory.outside_baseline

    @property
    def turn_rewards(self) -> list[float]:
        """[turns] the parts of the reward that name each turn, added up."""
        parts = self.trajectory.reward_parts
        return turn_rewards(self.trajectory.turns, [(part.turn, part.value) for part in parts])


def members_of(groups: Sequence[Group], rows: Sequence[Row]) -> list[Member]:
    """Every trajectory of the groups, in their order."""
    places: dict[str, list[int]] = defaultdict(list)
    for place, row in enumerate(rows):
        places[row.trajectory].append(place)
    return [
        Member(group=group.id, trajectory=trajectory, rows=tuple(places[trajectory.id]))
        for group in groups
        for trajectory in group.trajectories
    ]


def turns_of_targets(member: Member, rows: Sequence[Row]) -> np.ndarray:
    """[targets] which turn wrote each target, over all rows of the member."""
    parts = [np.zeros(0, dtype=np.int64)]
    for place in member.rows:
        row = rows[place]
        segments = member.trajectory.sequences[row.sequence].segments
        turns = np.repeat([s.turn for s in segments], [len(s.token_ids) for s in segments])
        parts.append(turns[: len(row.tokens)][row.target])
    return np.concatenate(parts)
