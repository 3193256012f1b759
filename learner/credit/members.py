"""Members of groups: recorded trajectories with the rows that train on them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from learner.training.batch import Row
from toolwright.credit.turns import Turns, turn_rewards
from toolwright.types import Group, Trajectory


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """A trajectory of a group. A masked trajectory has no rows, and may still be in the
    baseline."""

    group: str
    trajectory: Trajectory
    rows: tuple[int, ...]
    """Indices of its rows in the batch, in the order of the sequences."""

    @property
    def in_baseline(self) -> bool:
        """Whether others are compared with it."""
        return not self.trajectory.outside_baseline

    @property
    def turns(self) -> Turns:
        """Its turns, with the sum of the reward parts of each."""
        own = self.trajectory
        parts = [(part.turn, part.value) for part in own.reward_parts]
        return Turns(
            rewards=turn_rewards(own.turns, parts),
            outcome=own.reward,
            anchors=own.anchors,
            in_baseline=self.in_baseline,
            group=self.group,
        )


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
    """[targets] turn of each target, over all rows of the member."""
    parts = [np.zeros(0, dtype=np.int64)]
    for place in member.rows:
        row = rows[place]
        segments = member.trajectory.sequences[row.sequence].segments
        turns = np.repeat([s.turn for s in segments], [len(s.token_ids) for s in segments])
        parts.append(turns[: len(row.tokens)][row.target])
    return np.concatenate(parts)
