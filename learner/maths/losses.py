"""Losses of the policy: log-probabilities and advantages in, one number a token out.

Pure functions on tensors of one shape ([n] or [B, T]); gradients flow through `logp` alone,
everything else is treated as a constant. They do not know where tokens came from; masking and
means are the business of whoever adds the tokens up (`token_weights`).
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import torch

LOG_RATIO_LIMIT = 20.0
KL_LIMIT = 10.0
GSPO_LOG_LIMIT = 10.0

CorrectionMode = Literal["token_truncate", "token_mask", "seq_truncate", "geo_mask"]


class Clipped(NamedTuple):
    """Loss, importance ratio, and where the upper/lower or the dual clip decided."""

    loss: torch.Tensor
    ratio: torch.Tensor
    clipped: torch.Tensor
    dual_clipped: torch.Tensor


def importance(logp: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """exp(logp - other), the exponent limited to +-20."""
    return (logp - other).clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT).exp()


def kl(
    logp: torch.Tensor, reference: torch.Tensor, estimator: Literal["k1", "k2", "k3", "abs"]
) -> torch.Tensor:
    """Estimates of KL(policy || reference) from the policy's tokens (spec 6.3).

    d = logp - reference: k1 = d, k2 = d^2 / 2, k3 = exp(-d) - 1 + d, abs = |d|; k3 is limited to
    +-10 and has no gradient beyond.
    """
    d = logp - reference
    if estimator == "k1":
        return d
    if estimator == "k2":
        return d.square() / 2
    if estimator == "abs":
        return d.abs()
    k3 = (-d).clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT).exp() - 1 + d
    return k3.clamp(-KL_LIMIT, KL_LIMIT)


def ppo_clip(
    logp: torch.Tensor,
    old: torch.Tensor,
    advantage: torch.Tensor,
    *,
    clip_low: float,
    clip_high: float,
    dual_clip: float | None = None,
) -> Clipped:
    """max(-A r, -A clip(r, 1 - low, 1 + high)), for A < 0 at most -A * dual_clip (spec 6.4)."""
    ratio = importance(logp, old)
    plain = -advantage * ratio
    bounded = -advantage * ratio.clamp(1 - clip_low, 1 + clip_high)
    loss = torch.maximum(plain, bounded)
    clipped = bounded > plain
    dual = torch.zeros_like(clipped)
    if dual_clip is not None:
        ceiling = -advantage * dual_clip
        dual = (advantage < 0) & (loss > ceiling)
        loss = torch.where(dual, ceiling, loss)
    return Clipped(loss, ratio, clipped, dual)


def behaviour_weight(
    proximal: torch.Tensor,
    behaviour: torch.Tensor,
    *,
    cap: float,
    cap_mode: Literal["truncate", "mask"] = "truncate",
) -> torch.Tensor:
    """exp(proximal - behaviour), above `cap` cut to it or set to 0 (spec 6.7, 6.8). Detached."""
    weight = importance(proximal, behaviour).detach()
    if cap_mode == "truncate":
        return weight.clamp(max=cap)
    return torch.where(weight > cap, torch.zeros_like(weight), weight)


def gspo(
    logp: torch.Tensor,
    old: torch.Tensor,
    advantage: torch.Tensor,
    mask: torch.Tensor,
    *,
    clip_low: float,
    clip_high: float,
) -> tuple[torch.Tensor, torch.Tensor]:
    """GSPO (spec 6.6): ([B] sequence ratios, [B, T] token losses).

    Every token of a sequence carries the sequence's ratio in value and its own share of the
    gradient; aggregate with seq-mean-token-mean. advantage: [B].
    """
    counts = mask.sum(-1).clamp(min=1)
    log_ratio = ((logp - old) * mask).sum(-1) / counts
    log_ratio = log_ratio.clamp(max=GSPO_LOG_LIMIT)
    token = (logp - logp.detach() + log_ratio.detach().unsqueeze(-1)).clamp(max=GSPO_LOG_LIMIT)
    ratio = token.exp()
    a = advantage.unsqueeze(-1)
    loss = torch.maximum(-a * ratio, -a * ratio.clamp(1 - clip_low, 1 + clip_high))
    return log_ratio.exp(), loss


def cispo(
    logp: torch.Tensor,
    old: torch.Tensor,
    advantage: torch.Tensor,
    *,
    clip_low: float,
    clip_high: float,
) -> tuple[torch.Tensor, torch.Tensor]:
    """CISPO (spec 6.6): (detached clipped ratio, -ratio * A * logp)."""
    weight = importance(logp, old).detach().clamp(1 - clip_low, 1 + clip_high)
    return weight, -weight * advantage * logp


def rollout_correction(
    train: torch.Tensor,
    rollout: torch.Tensor,
    mask: torch.Tensor,
    mode: CorrectionMode,
    *,
    upper: float = 2.0,
    lower: float | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Weights for sampler/trainer mismatch (spec 6.7): ([B, T] weights, [B, T] mask). Detached.

    lower: of the mask modes, None = 1 / upper.
    """
    low = 1.0 / upper if lower is None else lower
    live = mask > 0
    log_ratio = torch.where(live, train.detach() - rollout.detach(), torch.zeros_like(train))
    log_ratio = log_ratio.clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT)
    ratio = log_ratio.exp()
    if mode == "token_truncate":
        return ratio.clamp(max=upper) * live, mask
    if mode == "token_mask":
        kept = live & (ratio >= low) & (ratio <= upper)
        return ratio * kept, kept.to(mask.dtype)
    if mode == "seq_truncate":
        total = log_ratio.sum(-1, keepdim=True).clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT)
        return total.exp().clamp(max=upper) * live, mask
    mean = log_ratio.sum(-1, keepdim=True) / live.sum(-1, keepdim=True).clamp(min=1)
    kept = live & (mean.exp() >= low) & (mean.exp() <= upper)
    return kept.to(train.dtype), kept.to(mask.dtype)


def rejection_k3(
    log_ratio: torch.Tensor, mask: torch.Tensor, threshold: float
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Divergence of sequences (spec 6.7): ([.., T] k3 a token, [..] mean, [..] keep)."""
    bounded = log_ratio.clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT)
    k3 = bounded.exp() - 1 - bounded
    mean = (k3 * mask).sum(-1) / mask.sum(-1).clamp(min=1)
    return k3, mean, mean <= threshold


def token_weights(counts: list[int], mode: str, *, norm: float = 1.0) -> list[float]:
    """What one token of each sequence weighs in the batch's loss (spec 6.5).

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
