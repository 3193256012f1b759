"""GMPO (arXiv 2507.20673): the geometric mean of clipped token ratios."""

from __future__ import annotations

import torch

from learner.config.objective import Loss
from learner.maths.losses import PolicyLoss, Tokens
from learner.maths.ratios import limited, row_means


def loss(tokens: Tokens, settings: Loss) -> PolicyLoss:
    """-A times the geometric mean of the sequence's clipped ratios.

    Bounds are in log space, exp(-low) to exp(high), and one-sided as PPO's: a token's log-ratio
    is cut from above where A > 0 and from below where A < 0. In the token form, as `gspo`.
    """
    logp, advantage = tokens.logp, tokens.advantage
    log_ratio = limited(logp - tokens.old)
    cut = log_ratio.clamp(-settings.clip_low, settings.clip_high)
    log_ratio = torch.where(
        advantage > 0, torch.minimum(log_ratio, cut), torch.maximum(log_ratio, cut)
    )
    mean = row_means(log_ratio.detach(), tokens.row)
    ratio = (log_ratio - log_ratio.detach() + mean).exp()
    own = (logp - tokens.old).detach()
    above = (advantage > 0) & (own > settings.clip_high)
    below = (advantage < 0) & (own < -settings.clip_low)
    return PolicyLoss(-advantage * ratio, ratio, above, below, torch.zeros_like(above))
