"""Uncertainty of the policy at a position, and the decision to branch there. Pure.

The formulas are those of ARPO's released code: entropies are summed over the examined tokens, so a
short continuation seems certain. `agg = "mean"` divides by the number of tokens.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class BranchDecision:
    """The decision about one turn."""

    score: float
    """Value that was compared with the threshold."""
    branch: bool
    prob: float
    """Probability of `branch` before the draw."""


def entropy(
    top_logprobs: Sequence[Sequence[float]], *, vocab: int, agg: Literal["sum", "mean"] = "sum"
) -> float:
    """-sum p ln p over the likeliest tokens of each position, over all positions, in units of ln
    vocab.

    top_logprobs: for each examined token, in nats, -inf for an impossible one. 0 for no tokens.
    Raises ValueError for a vocabulary of fewer than two tokens.
    """
    if vocab < 2:
        raise ValueError(f"a vocabulary of {vocab} leaves nothing to be uncertain about")
    possible = (one for row in top_logprobs for one in row if one > -math.inf)
    total = -math.fsum(math.exp(one) * one for one in possible)
    places = len(top_logprobs) if agg == "mean" else 1
    return total / math.log(vocab) / max(1, places)


def branch_decision(
    *, h_init: float, h_now: float, weight: float, uniform: float, threshold: float
) -> BranchDecision:
    """Whether a rollout branches. Its entropy was `h_init` at the prompt and is `h_now`.

    uniform: drawn from [0, 1). threshold: in [0, 1); at 1 the clamped score would always pass. The
    more the entropy has risen, the lower the score.
    """
    rise = weight * (h_now - h_init)
    score = _clamp(uniform - rise)
    return BranchDecision(score=score, branch=score <= threshold, prob=_clamp(threshold + rise))


def _clamp(value: float) -> float:
    return min(1.0, max(0.0, value))
