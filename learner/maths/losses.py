"""Losses of the policy: log-probabilities and advantages in, one number a token out.

Pure functions on the tokens that carry loss, [n] of one micro-batch; gradients flow through `logp`
alone, everything else is treated as a constant. What belongs to one sequence is told by `row` [n]:
tokens of one sequence stand together. Where the tokens came from is not known here; means are the
business of whoever adds the tokens up (`token_weights`).
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import torch

LOG_RATIO_LIMIT = 20.0
KL_LIMIT = 10.0
GSPO_LOG_LIMIT = 10.0


class PolicyLoss(NamedTuple):
    """[n] losses, [n] importance ratios, and where the upper, lower or dual bound decided."""

    loss: torch.Tensor
    ratio: torch.Tensor
    above: torch.Tensor
    below: torch.Tensor
    dual: torch.Tensor


def importance(logp: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """exp(logp - other), the exponent limited to +-20."""
    return limited(logp - other).exp()


def limited(log_ratio: torch.Tensor) -> torch.Tensor:
    """A log-ratio whose exponential is a finite number."""
    return log_ratio.clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT)


def row_sums(values: torch.Tensor, row: torch.Tensor) -> torch.Tensor:
    """[n] -> [n]: at each token the sum over its sequence."""
    if not len(values):
        return values
    begins = torch.ones_like(row)
    begins[1:] = (row[1:] != row[:-1]).to(row.dtype)
    place = begins.cumsum(0) - 1
    return torch.zeros_like(values).index_add(0, place, values)[place]


def row_means(values: torch.Tensor, row: torch.Tensor) -> torch.Tensor:
    """[n] -> [n]: at each token the mean over its sequence."""
    return row_sums(values, row) / row_sums(torch.ones_like(values), row)


def kl(
    logp: torch.Tensor, reference: torch.Tensor, estimator: Literal["k1", "k2", "k3", "k3+", "abs"]
) -> torch.Tensor:
    """Estimates of KL(policy || reference) from the policy's tokens.

    d = logp - reference: k1 = d, k2 = d^2 / 2, k3 = exp(-d) - 1 + d, abs = |d|; k3 is limited to
    +-10 and has no gradient beyond. Only k2's gradient is that of the reverse KL in expectation
    (Schulman, "Approximating KL Divergence"); "k3+" has k3's value and k2's gradient.
    """
    d = logp - reference
    if estimator == "k1":
        return d
    if estimator == "k2":
        return d.square() / 2
    if estimator == "abs":
        return d.abs()
    k3 = (limited(-d).exp() - 1 + d).clamp(-KL_LIMIT, KL_LIMIT)
    if estimator == "k3":
        return k3
    k2 = d.square() / 2
    return k2 - k2.detach() + k3.detach()


def ppo_clip(
    logp: torch.Tensor,
    old: torch.Tensor,
    advantage: torch.Tensor,
    *,
    clip_low: float,
    clip_high: float,
    dual_clip: float = 0.0,
) -> PolicyLoss:
    """max(-A r, -A clip(r, 1 - low, 1 + high)), for A < 0 at most -A * dual_clip.

    PPO (Schulman et al. 2017, eq. 7) with DAPO's two bounds. dual_clip: 0 is none (Ye et al. 2020).
    """
    ratio = importance(logp, old)
    plain = -advantage * ratio
    bounded = -advantage * ratio.clamp(1 - clip_low, 1 + clip_high)
    loss = torch.maximum(plain, bounded)
    decided = bounded > plain
    dual = torch.zeros_like(decided)
    if dual_clip:
        ceiling = -advantage * dual_clip
        dual = (advantage < 0) & (loss > ceiling)
        loss = torch.where(dual, ceiling, loss)
    return PolicyLoss(loss, ratio, decided & (advantage > 0), decided & (advantage < 0), dual)


def gspo(
    logp: torch.Tensor,
    old: torch.Tensor,
    advantage: torch.Tensor,
    row: torch.Tensor,
    *,
    clip_low: float,
    clip_high: float,
) -> PolicyLoss:
    """PPO's clip of the sequence's ratio s = exp(mean(logp - old)) (GSPO, arXiv 2507.18071).

    In the token form: every token has the sequence's ratio in value and its own share of the
    gradient, so that with seq-mean-token-mean a sequence's loss is max(-A s, -A clip(s)).
    """
    log_ratio = row_means((logp - old).detach(), row).clamp(max=GSPO_LOG_LIMIT)
    ratio = (logp - logp.detach() + log_ratio).exp()
    plain = -advantage * ratio
    bounded = -advantage * ratio.clamp(1 - clip_low, 1 + clip_high)
    decided = bounded > plain
    return PolicyLoss(
        torch.maximum(plain, bounded),
        ratio,
        decided & (advantage > 0),
        decided & (advantage < 0),
        torch.zeros_like(decided),
    )


def cispo(
    logp: torch.Tensor,
    old: torch.Tensor,
    advantage: torch.Tensor,
    *,
    clip_low: float,
    clip_high: float,
) -> PolicyLoss:
    """-sg(clip(r, 1 - low, 1 + high)) A logp (CISPO, MiniMax-M1, arXiv 2506.13585).

    No token loses its gradient.
    """
    ratio = importance(logp, old).detach()
    low, high = 1 - clip_low, 1 + clip_high
    loss = -ratio.clamp(low, high) * advantage * logp
    above = ratio > high
    return PolicyLoss(loss, ratio, above, ratio < low, torch.zeros_like(above))


def sapo(
    logp: torch.Tensor,
    old: torch.Tensor,
    advantage: torch.Tensor,
    *,
    tau_positive: float,
    tau_negative: float,
) -> PolicyLoss:
    """-A sigmoid(tau (r - 1)) 4 / tau, tau by the sign of A (SAPO, arXiv 2511.20347).

    A soft gate in place of a clip: the gradient is REINFORCE's at r = 1 and fades to both sides.
    The value at r = 1 is -2 A / tau.
    """
    ratio = importance(logp, old)
    tau = torch.full_like(advantage, tau_negative).masked_fill(advantage > 0, tau_positive)
    loss = -advantage * torch.sigmoid(tau * (ratio - 1)) * 4 / tau
    none = torch.zeros_like(loss, dtype=torch.bool)
    return PolicyLoss(loss, ratio, none, none, none)


def gmpo(
    logp: torch.Tensor,
    old: torch.Tensor,
    advantage: torch.Tensor,
    row: torch.Tensor,
    *,
    clip_low: float,
    clip_high: float,
) -> PolicyLoss:
    """-A times the geometric mean of clipped token ratios (GMPO, arXiv 2507.20673).

    Bounds are in log space, exp(-low) to exp(high), and one-sided as PPO's: a token's log-ratio
    is cut from above where A > 0 and from below where A < 0. Token form as in `gspo`: with
    seq-mean-token-mean a sequence's loss is -A exp(mean of its cut log-ratios).
    """
    log_ratio = limited(logp - old)
    cut = log_ratio.clamp(-clip_low, clip_high)
    log_ratio = torch.where(
        advantage > 0, torch.minimum(log_ratio, cut), torch.maximum(log_ratio, cut)
    )
    mean = row_means(log_ratio.detach(), row)
    ratio = (log_ratio - log_ratio.detach() + mean).exp()
    own = (logp - old).detach()
    above = (advantage > 0) & (own > clip_high)
    below = (advantage < 0) & (own < -clip_low)
    return PolicyLoss(-advantage * ratio, ratio, above, below, torch.zeros_like(above))


def reinforce(logp: torch.Tensor, advantage: torch.Tensor) -> PolicyLoss:
    """-A logp. What the tokens were sampled with is the business of a correction's weight."""
    none = torch.zeros_like(logp, dtype=torch.bool)
    return PolicyLoss(-advantage * logp, torch.ones_like(logp), none, none, none)


def token_weights(counts: list[int], mode: str, *, norm: float = 1.0) -> list[float]:
    """What one token of each sequence weighs in the batch's loss.

    counts: policy tokens of each sequence of the whole (global) batch. The loss is the sum of
    weight times token loss, so that any split into micro-batches or ranks gives one gradient.
    Sequences without policy tokens weigh nothing and count nowhere.
    """
    live = sum(count > 0 for count in counts)
    if not live:
        return [0.0] * len(counts)
    if mode == "token-mean":
        return [1.0 / sum(counts)] * len(counts)
    if mode == "seq-mean-token-mean":
        return [1.0 / (count * live) if count else 0.0 for count in counts]
    if mode == "seq-mean-token-sum":
        return [1.0 / live] * len(counts)
    if mode == "seq-sum-token-sum-norm":
        return [1.0 / norm] * len(counts)
    raise ValueError(f"unknown aggregation {mode!r}")
