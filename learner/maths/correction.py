"""Corrections for a sampler and a learner that disagree: weights of tokens, and dropped tokens.

rho = exp(old - roll) compares two log-probs of a token: old by the learner at the start of the
update, roll by the sampler. A mode weights tokens (`weights`), drops tokens (`judge`), or both;
everything is detached. `judge` decides for one whole sequence, before the batch is split: dropped
tokens count in no mean.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

import torch

from learner.config.objective import Correction, Reject
from learner.maths.ratios import limited, row_sums
from toolwright.credit.corrections import CORRECTIONS, CorrectionMode


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """Targets of one sequence that stay in the batch, and why all were dropped if they were."""

    kept: torch.Tensor
    """[n] bool."""
    vetoed: bool = False
    """Whether a token is almost impossible by the learner."""
    rejected: bool = False
    """Whether the sequence as a whole diverges."""


def leaves_out(mode: CorrectionMode, bounds: Correction) -> bool:
    """Whether `judge` has to see every sequence before the batch's means are fixed."""
    masks = CORRECTIONS[mode].leaves_out != "nothing"
    return masks or bounds.veto > 0 or bool(bounds.reject)


def judge(log_ratio: torch.Tensor, mode: CorrectionMode, bounds: Correction) -> Judgement:
    """[n] old - roll of the targets of one sequence, n > 0."""
    nothing = torch.zeros_like(log_ratio, dtype=torch.bool)
    masks = CORRECTIONS[mode].leaves_out
    if bounds.veto and log_ratio.min() < math.log(bounds.veto):
        return Judgement(kept=nothing, vetoed=True)
    log_ratio = limited(log_ratio.double())
    if not all(passes(log_ratio, rule) for rule in bounds.reject):
        return Judgement(kept=nothing, rejected=True)
    if masks == "sequences" and not bounds.low <= math.exp(log_ratio.mean()) <= bounds.upper:
        return Judgement(kept=nothing, rejected=True)
    if masks == "tokens":
        ratio = log_ratio.exp()
        return Judgement(kept=(ratio >= bounds.low) & (ratio <= bounds.upper))
    return Judgement(kept=~nothing)


def divergence(log_ratio: torch.Tensor, statistic: Literal["k1", "k2", "k3"]) -> torch.Tensor:
    """[n] log rho -> [n]: k1 = log rho, k2 = (log rho)^2 / 2, k3 = rho - 1 - log rho.

    k2 and k3 are never negative.
    """
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


Weighed = tuple[torch.Tensor, torch.Tensor]
"""([n] weights, [n] bool where a cap decided)."""


def _by_token(log_ratio: torch.Tensor, _row: torch.Tensor, bounds: Correction) -> Weighed:
    ratio = limited(log_ratio).exp()
    return ratio.clamp(max=bounds.upper), ratio > bounds.upper


def _by_sequence(log_ratio: torch.Tensor, row: torch.Tensor, bounds: Correction) -> Weighed:
    ratio = limited(row_sums(limited(log_ratio), row)).exp()
    return ratio.clamp(max=bounds.upper), ratio > bounds.upper


def _ones(log_ratio: torch.Tensor, _row: torch.Tensor, _bounds: Correction) -> Weighed:
    return torch.ones_like(log_ratio), torch.zeros_like(log_ratio, dtype=torch.bool)


def _decoupled(log_ratio: torch.Tensor, _row: torch.Tensor, bounds: Correction) -> Weighed:
    ratio = limited(log_ratio).exp()
    capped = ratio > bounds.decoupled_cap
    if bounds.decoupled_cap_mode == "mask":
        return ratio.masked_fill(capped, 0.0), capped
    return ratio.clamp(max=bounds.decoupled_cap), capped


WEIGHTS: Mapping[str, Callable[[torch.Tensor, torch.Tensor, Correction], Weighed]] = {
    "token_truncate": _by_token,  # truncated importance sampling
    "token_mask": _by_token,  # `judge` has left out what is above the bound
    "seq_truncate": _by_sequence,
    "geo_mask": _ones,
    "decoupled": _decoupled,  # AReaL
}
"""([n] log rho, [n] sequence of each token, bounds) -> weights, by the names of
`toolwright.credit.corrections.CORRECTIONS` that weigh."""


def weights(
    mode: CorrectionMode,
    old: torch.Tensor,
    behaviour: torch.Tensor,
    row: torch.Tensor,
    bounds: Correction,
) -> Weighed:
    """Weights of tokens that `judge` kept. KeyError for bypass, which has no weights."""
    return WEIGHTS[mode]((old - behaviour).detach(), row, bounds)
