"""PPO (Schulman et al. 2017, eq. 7) with the two bounds of DAPO (arXiv 2503.14476)."""

from __future__ import annotations

import torch

from learner.config.objective import Loss
from learner.maths.losses import PolicyLoss, Tokens
from learner.maths.ratios import importance


def loss(tokens: Tokens, settings: Loss) -> PolicyLoss:
    """max(-A r, -A clip(r, 1 - low, 1 + high)), for A < 0 at most -A * dual_clip.

    A dual_clip of 0 sets no such limit (Ye et al. 2020).
    """
    advantage = tokens.advantage
    ratio = importance(tokens.logp, tokens.old)
    plain = -advantage * ratio
    bounded = -advantage * ratio.clamp(1 - settings.clip_low, 1 + settings.clip_high)
    found = torch.maximum(plain, bounded)
    decided = bounded > plain
    dual = torch.zeros_like(decided)
    if settings.dual_clip:
        ceiling = -advantage * settings.dual_clip
        dual = (advantage < 0) & (found > ceiling)
        found = torch.where(dual, ceiling, found)
    return PolicyLoss(found, ratio, decided & (advantage > 0), decided & (advantage < 0), dual)
