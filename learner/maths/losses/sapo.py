"""SAPO (arXiv 2511.20347): a soft gate in place of a clip."""

from __future__ import annotations

import torch

from learner.config.objective import Loss
from learner.maths.losses import PolicyLoss, Tokens
from learner.maths.ratios import importance


def loss(tokens: Tokens, settings: Loss) -> PolicyLoss:
    """-A sigmoid(tau (r - 1)) 4 / tau, tau by the sign of A.

    The gradient is REINFORCE's at r = 1 and fades to both sides. The value at r = 1 is -2 A / tau.
    """
    advantage = tokens.advantage
    ratio = importance(tokens.logp, tokens.old)
    tau = torch.full_like(advantage, settings.tau_negative).masked_fill(
        advantage > 0, settings.tau_positive
    )
    found = -advantage * torch.sigmoid(tau * (ratio - 1)) * 4 / tau
    unbounded = torch.zeros_like(found, dtype=torch.bool)
    return PolicyLoss(found, ratio, unbounded, unbounded, unbounded)
