"""What is done about sampler and learner not agreeing: weights on tokens, and tokens left out.

rho = exp(old - roll) compares the learner's log-prob of a token at the start of the update (old)
with the sampler's (roll). A mode gives weights (`weights`), leaves out (`judge`), or both; all of
it is detached. Leaving out is decided for one whole sequence at a time, before the batch is split:
what is left out counts in no mean.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch

from learner.config.objective import Correction, Reject
from learner.maths.losses import importance, limited, row_sums
from toolwright.recipe.models.shared_tables import CorrectionMode

MASK_MODES: tuple[CorrectionMode, ...] = ("token_mask", "geo_mask")


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """kept: [n] bool, which targets of a sequence stay. At most one reason for leaving all out.

    vetoed: a token that the learner holds for all but impossible. rejected: the sequence as a
    whole diverges.
    """

    kept: torch.Tensor
    vetoed: bool = False
    rejected: bool = False


def leaves_out(mode: CorrectionMode, bounds: Correction) -> bool:
    """Whether `judge` has to see every sequence before the batch's means are fixed."""
    return mode in MASK_MODES or bounds.veto > 0 or bool(bounds.reject)


def judge(log_ratio: torch.Tensor, mode: CorrectionMode, bounds: Correction) -> Verdict:
    """[n] old - roll of the targets of one sequence, n > 0."""
    nothing = torch.zeros_like(log_ratio, dtype=torch.bool)
    if bounds.veto and log_ratio.min() < math.log(bounds.veto):
        return Verdict(kept=nothing, vetoed=True)
    log_ratio = limited(log_ratio.double())
    if not all(passes(log_ratio, rule) for rule in bounds.reject):
        return Verdict(kept=nothing, rejected=True)
    if mode == "geo_mask" and not bounds.low <= math.exp(log_ratio.mean()) <= bounds.upper:
        return Verdict(kept=nothing, rejected=True)
    if mode == "token_mask":
        ratio = log_ratio.exp()
        return Verdict(kept=(ratio >= bounds.low) & (ratio <= bounds.upper))
    return Verdict(kept=~nothing)


def divergence(log_ratio: torch.Tensor, statistic: Literal["k1", "k2", "k3"]) -> torch.Tensor:
    """[n] log rho -> [n] what each token adds: k1 = log rho, k2 its half square, k3 = rho - 1 -
    log rho. k2 and k3 are never negative."""
    if statistic == "k1":
        return log_ratio
    if statistic == "k2":
        return log_ratio.square() / 2
    return log_ratio.exp() - 1 - log_ratio


def passes(log_ratio: torch.Tensor, rule: Reject) -> bool:
    """Whether a sequence is within the rule's bounds; those of k1 bound rho, not its logarithm."""
    values = divergence(limited(log_ratio), rule.statistic)
    if rule.over == "max":
        least, most = float(values.min()), float(values.max())
    else:
        least = most = float(values.sum() if rule.over == "sum" else values.mean())
    if rule.statistic != "k1":
        return most <= rule.upper
    return math.log(rule.low) <= least and most <= math.log(rule.upper)


def weights(
    mode: CorrectionMode,
    old: torch.Tensor,
    behaviour: torch.Tensor,
    row: torch.Tensor,
    bounds: Correction,
) -> tuple[torch.Tensor, torch.Tensor]:
    """([n] weights, [n] bool where a cap decided), over tokens that `judge` kept; not of bypass.

    token_truncate: min(rho, C), truncated importance sampling. seq_truncate: min(product of the
    sequence's rho, C). token_mask: rho. geo_mask: 1. decoupled: rho above its cap is cut to it or
    set to 0 (AReaL).
    """
    ratio = importance(old, behaviour).detach()
    if mode == "decoupled":
        capped = ratio > bounds.decoupled_cap
        if bounds.decoupled_cap_mode == "mask":
            return ratio.masked_fill(capped, 0.0), capped
        return ratio.clamp(max=bounds.decoupled_cap), capped
    if mode == "geo_mask":
        return torch.ones_like(ratio), torch.zeros_like(ratio, dtype=torch.bool)
    if mode == "seq_truncate":
        ratio = limited(row_sums(limited((old - behaviour).detach()), row)).exp()
    return ratio.clamp(max=bounds.upper), ratio > bounds.upper
