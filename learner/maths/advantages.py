"""Advantage estimators: rewards in, one number a trajectory or a token out.

Pure functions on groups, sequences of Python numbers or [B, T] tensors, float64 inside. A group is
told by its label, never by position; permuting trajectories permutes the result; empty input gives
empty output. Does not know models, batches or losses.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Literal

import torch

from learner.config import Advantage
from toolwright.types import Group

ZERO_STD = 1e-12
"""Below it a group counts as constant: dividing would blow rounding up to a signal."""
WHITEN_EPS = 1e-8


def advantages_of(groups: Sequence[Group], settings: Advantage) -> dict[str, float]:
    """Advantage by trajectory id, over the members present.

    A masked member counts in its group's mean and deviation as any other does, unless it is
    outside of the baseline (spec 3.6).
    """
    members = [(g.id, t) for g in groups for t in g.trajectories]
    values = group_advantage(
        [trajectory.reward for _, trajectory in members],
        [group for group, _ in members],
        std=settings.std,
        eps=settings.eps,
        singleton=settings.singleton,
        in_baseline=[not trajectory.outside_baseline for _, trajectory in members],
    )
    return {t.id: value for (_, t), value in zip(members, values, strict=True)}


def group_advantage(
    rewards: Sequence[float],
    groups: Sequence[Hashable],
    *,
    std: Literal["population", "sample", "none"] = "sample",
    eps: float = 1e-6,
    singleton: Literal["zero", "raw"] = "zero",
    in_baseline: Sequence[bool] | None = None,
) -> list[float]:
    """(R - mean) / (std + eps) within each group (spec 6.1, `common.group_advantage`).

    "none" only subtracts the mean. A lone rollout gets 0, or with "raw" R / (1 + eps).

    in_baseline: whose rewards mean and std are taken over, all by default (spec 3.6). The others
    are measured against them. Where fewer than two are in the baseline, every member of the group
    is treated as a lone rollout.
    """
    inside = in_baseline if in_baseline is not None else [True] * len(rewards)

    def advantage(own: list[float], counts: list[bool]) -> list[float]:
        baseline = [value for value, counted in zip(own, counts, strict=True) if counted]
        if len(baseline) < 2:
            return [value / (1.0 + eps) if singleton == "raw" else 0.0 for value in own]
        mean = sum(baseline) / len(baseline)
        centred = [value - mean for value in own]
        if std == "none":
            return centred
        squares = sum((value - mean) ** 2 for value in baseline)
        spread = (squares / (len(baseline) - (1 if std == "sample" else 0))) ** 0.5
        if spread <= ZERO_STD:
            return [0.0] * len(own)
        return [value / (spread + eps) for value in centred]

    out = [0.0] * len(rewards)
    for positions in _positions(groups):
        own = [float(rewards[p]) for p in positions]
        values = advantage(own, [inside[p] for p in positions])
        for position, value in zip(positions, values, strict=True):
            out[position] = value
    return out


def rloo(rewards: Sequence[float], groups: Sequence[Hashable]) -> list[float]:
    """R minus the mean of the other members (spec 6.2); a lone rollout keeps R."""

    def advantage(own: list[float]) -> list[float]:
        if len(own) == 1:
            return own
        return [r - (sum(own) - r) / (len(own) - 1) for r in own]

    return _by_group(rewards, groups, advantage)


def opo(
    rewards: Sequence[float], groups: Sequence[Hashable], lengths: Sequence[int]
) -> list[float]:
    """R minus the length-weighted mean of the group (spec 6.2, OPO)."""
    weight: dict[Hashable, float] = defaultdict(float)
    total: dict[Hashable, float] = defaultdict(float)
    for reward, group, length in zip(rewards, groups, lengths, strict=True):
        weight[group] += length
        total[group] += length * reward
    return [
        reward - total[group] / weight[group] if weight[group] else 0.0
        for reward, group in zip(rewards, groups, strict=True)
    ]


def returns(token_rewards: torch.Tensor, mask: torch.Tensor, *, gamma: float = 1.0) -> torch.Tensor:
    """[B, T] G_t = r_t + gamma G_{t+1} over policy tokens only; 0 elsewhere (spec 6.2).

    Masked positions are stepped over: an observation neither discounts nor resets.
    """
    out = torch.zeros_like(token_rewards)
    running = torch.zeros(token_rewards.shape[0], dtype=token_rewards.dtype)
    for t in reversed(range(token_rewards.shape[1])):
        live = mask[:, t] > 0
        running = torch.where(live, token_rewards[:, t] + gamma * running, running)
        out[:, t] = torch.where(live, running, torch.zeros_like(running))
    return out


def returns_resetting_at_masks(
    token_rewards: torch.Tensor, mask: torch.Tensor, *, gamma: float = 1.0
) -> torch.Tensor:
    """[B, T] how public code computes `returns`, kept for comparison only (spec 6.2, Trap).

    The running return is multiplied with the mask, so every observation wipes out what the
    actions before it earned. Nothing in this project uses it.
    """
    out = torch.zeros_like(token_rewards)
    running = torch.zeros(token_rewards.shape[0], dtype=token_rewards.dtype)
    for t in reversed(range(token_rewards.shape[1])):
        running = token_rewards[:, t] + gamma * running
        out[:, t] = running
        running = running * mask[:, t]
    return out


def whiten(values: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """[B, T] (v - mean) (var + 1e-8)^-1/2 with unbiased statistics over mask 1; 0 elsewhere."""
    live = mask > 0
    if not bool(live.any()):
        return torch.zeros_like(values)
    kept = values[live]
    variance = kept.var(unbiased=True) if kept.numel() > 1 else torch.zeros((), dtype=values.dtype)
    return (values - kept.mean()) * (variance + WHITEN_EPS).rsqrt() * mask


def reinforce_pp(
    token_rewards: torch.Tensor, mask: torch.Tensor, *, gamma: float = 1.0
) -> tuple[torch.Tensor, torch.Tensor]:
    """REINFORCE++ (spec 6.2): ([B, T] returns, [B, T] whitened advantages)."""
    gained = returns(token_rewards, mask, gamma=gamma)
    return gained, whiten(gained, mask)


def rfpp_baseline(
    rewards: Sequence[float], groups: Sequence[Hashable], mask: torch.Tensor
) -> torch.Tensor:
    """REINFORCE++ with a group baseline (spec 6.2): [B, T] whitened over the batch.

    A lone rollout keeps its reward.
    """

    def advantage(own: list[float]) -> list[float]:
        return own if len(own) == 1 else _centred(own)

    centred = torch.tensor(_by_group(rewards, groups, advantage), dtype=torch.float64)
    return whiten(centred.unsqueeze(1).expand(mask.shape) * mask, mask)


def _centred(values: list[float]) -> list[float]:
    mean = sum(values) / len(values)
    return [value - mean for value in values]


def _by_group(
    rewards: Sequence[float],
    groups: Sequence[Hashable],
    advantage: Callable[[list[float]], list[float]],
) -> list[float]:
    out = [0.0] * len(rewards)
    for positions in _positions(groups):
        own = [float(rewards[p]) for p in positions]
        for position, value in zip(positions, advantage(own), strict=True):
            out[position] = value
    return out


def _positions(groups: Sequence[Hashable]) -> Iterable[list[int]]:
    """Where the members of each group are."""
    members: dict[Hashable, list[int]] = defaultdict(list)
    for position, group in enumerate(groups):
        members[group].append(position)
    return members.values()
