"""PPO (Schulman et al. 2017, eq. 7) with the two bounds of DAPO (arXiv 2503.14476)."""

from __future__ import annotations

import torch

from learner.config.objective import Loss
from learner.maths.losses import PolicyLoss, Tokens, clipped
from learner.maths.ratios import importance


def loss(tokens: Tokens, settings: Loss) -> PolicyLoss:
    """max(-A r, -A clip(r, 1 - low, 1 + high)), for A < 0 at most -A * dual_clip.

    A dual_clip of 0 sets no such limit (Ye et al. 2020).
    """
    advantage = tokens.advantage
    found = clipped(importance(tokens.logp, tokens.old), advantage, settings)
    if not settings.dual_clip:
        return found
    ceiling = -advantage * settings.dual_clip
    dual = (advantage < 0) & (found.loss > ceiling)
    return found._replace(loss=torch.where(dual, ceiling, found.loss), dual=dual)
