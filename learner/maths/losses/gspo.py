"""GSPO (arXiv 2507.18071): PPO's clip of the ratio of a whole sequence."""

from __future__ import annotations

from learner.config.objective import Loss
from learner.maths.losses import PolicyLoss, Tokens, clipped
from learner.maths.ratios import row_means

LOG_LIMIT = 10.0


def loss(tokens: Tokens, settings: Loss) -> PolicyLoss:
    """max(-A s, -A clip(s, 1 - low, 1 + high)), with the sequence's s = exp(mean(logp - old)).

    In the token form: every token has the sequence's ratio in value and its own share of the
    gradient, so that seq-mean-token-mean gives the sequence's loss.
    """
    logp = tokens.logp
    log_ratio = row_means((logp - tokens.old).detach(), tokens.row).clamp(max=LOG_LIMIT)
    return clipped((logp - logp.detach() + log_ratio).exp(), tokens.advantage, settings)
