"""On-policy distillation (Thinking Machines Lab 2025): reverse KL to a teacher on own samples.

Sources: thinkingmachines.ai/blog/on-policy-distillation, and tinker-cookbook's
`distillation/train_on_policy.py` with its loss "importance_sampling" and no discount.
"""

from __future__ import annotations

import torch

from learner.config.objective import Loss
from learner.maths.losses import PolicyLoss, Tokens
from learner.maths.ratios import importance


def loss(tokens: Tokens, _settings: Loss) -> PolicyLoss:
    """-A r, without a bound.

    A holds log p_teacher - log p_behaviour of the token (see `learner.credit.assign`). So on policy
    the expected gradient at a position is that of KL(policy || teacher) there.
    """
    ratio = importance(tokens.logp, tokens.old)
    unbounded = torch.zeros_like(ratio, dtype=torch.bool)
    return PolicyLoss(-tokens.advantage * ratio, ratio, unbounded, unbounded, unbounded)
