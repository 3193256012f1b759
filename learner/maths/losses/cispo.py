"""CISPO (MiniMax-M1, arXiv 2506.13585): REINFORCE weighted with a clipped ratio."""

from __future__ import annotations

import torch

from learner.config.objective import Loss
from learner.maths.losses import PolicyLoss, Tokens
from learner.maths.ratios import importance


def loss(tokens: Tokens, settings: Loss) -> PolicyLoss:
    """-sg(clip(r, 1 - low, 1 + high)) A logp. No token loses its gradient."""
    ratio = importance(tokens.logp, tokens.old).detach()
    low, high = 1 - settings.clip_low, 1 + settings.clip_high
    found = -ratio.clamp(low, high) * tokens.advantage * tokens.logp
    above = ratio > high
    return PolicyLoss(found, ratio, above, ratio < low, torch.zeros_like(above))
