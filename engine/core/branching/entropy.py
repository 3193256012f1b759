"""How uncertain the policy is at a place, and whether to branch there. Pure.

The formulas are those of ARPO's released code: entropies are summed over the tokens looked at, so
a short continuation looks certain. `agg = "mean"` divides by their number.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """score: what was compared with the threshold. prob: how likely `branch` was before the
    draw."""

    score: float
    branch: bool
    prob: float


def entropy(
    top_logprobs: Sequence[Sequence[float]], *, vocab: int, agg: Literal["sum", "mean"] = "sum"
) -> float:
    """-sum p ln p over the likeliest tokens of each place, over all places, in units of ln vocab.

    top_logprobs: for each token looked at, nats, -inf for an impossible one. 0 for no tokens.
    ValueError for a vocabulary of less than two tokens.
    """
    if vocab < 2:
        raise ValueError(f"a vocabulary of {vocab} leaves nothing to be uncertain about")
    possible = (one for row in top_logprobs for one in row if one > -math.inf)
    total = -math.fsum(math.exp(one) * one for one in possible)
    places = len(top_logprobs) if agg == "mean" else 1
    return total / math.log(vocab) / max(1, places)


def verdict(
    *, h_init: float, h_now: float, weight: float, uniform: float, threshold: float
) -> Verdict:
    """Whether a rollout branches whose entropy was `h_init` at the prompt and is `h_now`.

    uniform: drawn from [0, 1). threshold: in [0, 1); at 1 the clamped score would pass whatever was
    drawn. The higher the entropy has risen, the lower the score.
    """
    rise = weight * (h_now - h_init)
    score = _clamp(uniform - rise)
    return Verdict(score=score, branch=score <= threshold, prob=_clamp(threshold + rise))


def _clamp(value: float) -> float:
    return min(1.0, max(0.0, value))
