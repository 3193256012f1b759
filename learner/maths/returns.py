"""Estimators over the whole batch: token rewards in, one advantage a token out.

Pure functions on [B, T] float tensors; a mask is 1 on policy tokens and 0 elsewhere. Values at
masked positions are never read, so padding and observations change nothing. A value that is not
finite stays as it is and enters no statistics.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import torch

from toolwright.credit.advantages import centred
from toolwright.credit.signal import is_constant

WHITEN_EPS = 1e-8


def returns(token_rewards: torch.Tensor, mask: torch.Tensor, *, gamma: float = 1.0) -> torch.Tensor:
    """[B, T] G_t = r_t + gamma G_{t+1} over policy tokens only; 0 elsewhere.

    Masked positions are skipped: an observation neither discounts nor resets.
    """
    out = torch.zeros_like(token_rewards)
    running = torch.zeros(token_rewards.shape[0], dtype=token_rewards.dtype)
    for t in reversed(range(token_rewards.shape[1])):
        live = mask[:, t] > 0
        running = torch.where(live, token_rewards[:, t] + gamma * running, running)
        out[:, t] = torch.where(live, running, torch.zeros_like(running))
    return out


def whiten(
    values: torch.Tensor, mask: torch.Tensor, over: torch.Tensor | None = None
) -> torch.Tensor:
    """[B, T] (v - mean) (var + 1e-8)^-1/2 where the mask is 1; 0 elsewhere.

    over: [B, T], positions of the mean and the unbiased variance; the mask by default. If the
    values there are equal, the result is 0.
    """
    live = mask > 0
    kept = values[(over > 0 if over is not None else live) & values.isfinite()]
    if not kept.numel() or is_constant(float(kept.min()), float(kept.max())):
        return torch.where(live & ~values.isfinite(), values, torch.zeros_like(values))
    variance = kept.var(unbiased=True)
    white = (values - kept.mean()) * (variance + WHITEN_EPS).rsqrt()
    return torch.where(live, white, torch.zeros_like(values))


def reinforce_pp(
    token_rewards: torch.Tensor,
    mask: torch.Tensor,
    *,
    gamma: float = 1.0,
    over: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """REINFORCE++: ([B, T] returns, [B, T] returns whitened over the batch)."""
    gained = returns(token_rewards, mask, gamma=gamma)
    return gained, whiten(gained, mask, over)


def rfpp_baseline(
    rewards: Sequence[float],
    groups: Sequence[Hashable],
    mask: torch.Tensor,
    in_baseline: Sequence[bool] | None = None,
) -> torch.Tensor:
    """REINFORCE++ with a group baseline: [B, T] R minus the group's mean, whitened over the batch.

    A lone rollout keeps its reward. Members outside of the baseline enter no statistics.
    """
    inside = in_baseline if in_baseline is not None else [True] * len(rewards)
    values = torch.tensor(centred(rewards, groups, inside), dtype=torch.float64)
    over = mask * torch.tensor(inside, dtype=mask.dtype).unsqueeze(1)
    return whiten(values.unsqueeze(1).expand(mask.shape), mask, over)
