"""REINFORCE. The weight of a correction accounts for the policy that sampled."""

from __future__ import annotations

import torch

from learner.config.objective import Loss
from learner.maths.losses import PolicyLoss, Tokens


def loss(tokens: Tokens, _settings: Loss) -> PolicyLoss:
    """-A logp."""
    unbounded = torch.zeros_like(tokens.logp, dtype=torch.bool)
    ratio = torch.ones_like(tokens.logp)
    return PolicyLoss(-tokens.advantage * tokens.logp, ratio, unbounded, unbounded, unbounded)
