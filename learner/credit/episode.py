"""Advantages of trajectories, one a target, before turns add theirs.

A trajectory's sequences follow each other: the return of its last token flows back through all of
them. KL in the reward has RLHF's form, r_t -= beta (log pi - log pi_ref). It takes the sampler's
log-prob of the token, since the sampler drew it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from learner.config.objective import Advantage, Credit
from learner.credit.members import Member, turns_of_targets
from learner.maths.returns import reinforce_pp, rfpp_baseline
from learner.training.batch import Row
from toolwright.credit.estimators import ESTIMATORS, Rewards


def episode_advantages(
    members: Sequence[Member],
    rows: Sequence[Row],
    advantage: Advantage,
    credit: Credit,
    *,
    kl: float,
) -> tuple[list[np.ndarray], set[str]]:
    """([targets] float64 of every member, groups in which a member has an advantage).

    kl: coefficient of the KL penalty in the reward; above 0 rows must have reference log-probs.
    """
    penalties = [_penalty(member, rows, kl) for member in members]
    groups = [member.group for member in members]
    over_batch = OVER_BATCH.get(advantage.estimator)
    if over_batch is not None:
        tokens = over_batch(members, rows, penalties, advantage, credit)
        return tokens, {g for g, own in zip(groups, tokens, strict=True) if own.any()}
    values = compared(_rewards(members, penalties, credit), members, advantage)
    return (
        [np.full(len(penalty), value) for penalty, value in zip(penalties, values, strict=True)],
        {g for g, value in zip(groups, values, strict=True) if value},
    )


def compared(
    rewards: Sequence[float], members: Sequence[Member], advantage: Advantage
) -> list[float]:
    """One advantage a trajectory, by an estimator that compares the members of a group."""
    of_groups = ESTIMATORS[advantage.estimator].of_groups
    assert of_groups is not None, f"{advantage.estimator} compares over the batch"
    given = Rewards(
        rewards=rewards,
        groups=[member.group for member in members],
        lengths=[member.trajectory.response_tokens for member in members],
        in_baseline=[member.in_baseline for member in members],
    )
    return of_groups(given, advantage)


def _rewards(
    members: Sequence[Member], penalties: Sequence[np.ndarray], credit: Credit
) -> list[float]:
    """One number a trajectory: its reward, those of its turns if they count, less the penalty."""
    return [
        member.trajectory.reward
        + (sum(member.turns.rewards) if credit.count_in_reward else 0.0)
        - float(penalty.sum())
        for member, penalty in zip(members, penalties, strict=True)
    ]


def _whitened_rewards(
    members: Sequence[Member],
    _rows: Sequence[Row],
    penalties: Sequence[np.ndarray],
    _advantage: Advantage,
    credit: Credit,
) -> list[np.ndarray]:
    """REINFORCE++ with a group baseline."""
    sizes = [len(penalty) for penalty in penalties]
    white = rfpp_baseline(
        _rewards(members, penalties, credit),
        [member.group for member in members],
        _mask(sizes),
        [member.in_baseline for member in members],
    )
    return _cut(white, sizes)


def _whitened_returns(
    members: Sequence[Member],
    rows: Sequence[Row],
    penalties: Sequence[np.ndarray],
    advantage: Advantage,
    credit: Credit,
) -> list[np.ndarray]:
    """REINFORCE++: the reward is at the last target, a turn's reward at the turn's last target."""
    sizes = [len(penalty) for penalty in penalties]
    mask = _mask(sizes)
    rewards = torch.zeros_like(mask)
    for line, (member, penalty) in enumerate(zip(members, penalties, strict=True)):
        if not len(penalty):
            continue
        own = -penalty
        own[-1] += member.trajectory.reward
        if credit.count_in_reward:
            turns = turns_of_targets(member, rows)
            for turn, value in enumerate(member.turns.rewards):
                before = np.flatnonzero(turns <= turn)
                if len(before):
                    own[before[-1]] += value
        rewards[line, : len(own)] = torch.from_numpy(own)
    inside = torch.tensor([member.in_baseline for member in members], dtype=mask.dtype)
    _, white = reinforce_pp(
        rewards, mask, gamma=advantage.discount, over=mask * inside.unsqueeze(1)
    )
    return _cut(white, sizes)


OVER_BATCH = {
    "reinforce_pp": _whitened_returns,
    "reinforce_pp_baseline": _whitened_rewards,
}
"""(members, rows, penalties, settings) -> [targets] of each member, by the names of
`toolwright.credit.estimators.ESTIMATORS` that compare over the batch."""


def _penalty(member: Member, rows: Sequence[Row], kl: float) -> np.ndarray:
    """[targets] float64 KL penalty of each target."""
    parts = [np.zeros(0)]
    for place in member.rows:
        row = rows[place]
        if kl and row.reference is not None:
            parts.append(kl * row.excess(row.reference))
        else:
            parts.append(np.zeros(row.count))
    return np.concatenate(parts)


def _mask(sizes: Sequence[int]) -> torch.Tensor:
    """[members, longest] float64: 1 for each target, from the front."""
    places = torch.arange(max(sizes, default=0)).unsqueeze(0)
    return (places < torch.tensor(sizes, dtype=torch.int64).unsqueeze(1)).double()


def _cut(values: torch.Tensor, sizes: Sequence[int]) -> list[np.ndarray]:
    return [line[:size].numpy() for line, size in zip(values, sizes, strict=True)]
