"""Trajectories compared with trajectories: an advantage a target, before turns add theirs.

A trajectory's sequences follow each other: what its last token earned flows back through all of
them. KL in the reward (RLHF's form, r_t -= beta (log pi - log pi_ref)) takes the sampler's log-prob
of the token, since the sampler drew it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from learner.config.objective import Advantage, Credit
from learner.credit.earned import Member, turns_of_targets
from learner.maths.returns import reinforce_pp, rfpp_baseline
from learner.training.batch import Row
from toolwright.credit.advantages import within_groups


def episode_advantages(
    members: Sequence[Member],
    rows: Sequence[Row],
    advantage: Advantage,
    credit: Credit,
    *,
    kl: float,
) -> tuple[list[np.ndarray], set[str]]:
    """([targets] float64 of every member, groups in which a member has an advantage).

    kl: coefficient of the KL penalty in the reward; above 0 rows have reference log-probs.
    """
    penalties = [_penalty(member, rows, kl) for member in members]
    groups = [member.group for member in members]
    inside = [member.in_baseline for member in members]
    if advantage.estimator == "reinforce_pp":
        tokens = _by_token(members, rows, penalties, credit, discount=advantage.discount)
    else:
        rewards = [
            member.trajectory.reward
            + (sum(member.turn_rewards) if credit.count_in_reward else 0.0)
            - float(penalty.sum())
            for member, penalty in zip(members, penalties, strict=True)
        ]
        if advantage.estimator == "reinforce_pp_baseline":
            sizes = [len(penalty) for penalty in penalties]
            mask = _mask(sizes)
            white = rfpp_baseline(rewards, groups, mask, inside)
            tokens = _cut(white, sizes)
        else:
            values = compared(rewards, members, advantage)
            alive = {g for g, value in zip(groups, values, strict=True) if value}
            return [
                np.full(len(penalty), value)
                for penalty, value in zip(penalties, values, strict=True)
            ], alive
    return tokens, {g for g, own in zip(groups, tokens, strict=True) if own.any()}


def compared(
    rewards: Sequence[float], members: Sequence[Member], advantage: Advantage
) -> list[float]:
    """One advantage a trajectory, by an estimator that compares the members of a group."""
    return within_groups(
        rewards,
        [member.group for member in members],
        [member.trajectory.response_tokens for member in members],
        estimator=advantage.estimator,
        std=advantage.std,
        eps=advantage.eps,
        singleton=advantage.singleton,
        in_baseline=[member.in_baseline for member in members],
    )


def _by_token(
    members: Sequence[Member],
    rows: Sequence[Row],
    penalties: Sequence[np.ndarray],
    credit: Credit,
    *,
    discount: float,
) -> list[np.ndarray]:
    """REINFORCE++: the reward stands on the last target, a turn's on the last one up to it."""
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
            for turn, value in enumerate(member.turn_rewards):
                before = np.flatnonzero(turns <= turn)
                if len(before):
                    own[before[-1]] += value
        rewards[line, : len(own)] = torch.from_numpy(own)
    inside = torch.tensor([member.in_baseline for member in members], dtype=mask.dtype)
    _, white = reinforce_pp(rewards, mask, gamma=discount, over=mask * inside.unsqueeze(1))
    return _cut(white, sizes)


def _penalty(member: Member, rows: Sequence[Row], kl: float) -> np.ndarray:
    """[targets] float64 what the distance to the reference costs each target."""
    parts = [np.zeros(0)]
    for place in member.rows:
        row = rows[place]
        if kl and row.reference is not None:
            distance = row.behaviour.astype(np.float64) - row.reference
            parts.append(kl * distance[row.target])
        else:
            parts.append(np.zeros(row.count))
    return np.concatenate(parts)


def _mask(sizes: Sequence[int]) -> torch.Tensor:
    """[members, longest] float64: 1 on the targets of each, which stand at its front."""
    places = torch.arange(max(sizes, default=0)).unsqueeze(0)
    return (places < torch.tensor(sizes, dtype=torch.int64).unsqueeze(1)).double()


def _cut(values: torch.Tensor, sizes: Sequence[int]) -> list[np.ndarray]:
    return [line[:size].numpy() for line, size in zip(values, sizes, strict=True)]
