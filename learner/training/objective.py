"""What a micro-batch contributes to the loss, and what it tells the metrics.

Puts the pure functions of `losses` together as the recipe says. One correction for the gap
between the weights that sampled and the weights that train (spec 6.7, 6.8):

- bypass: the ratio is taken against the sampler's log-probs;
- token_truncate: against the weights at the start of the update, times min(exp(old - roll), C);
- decoupled: the same form for stale data, with its own cap.

With one optimizer step a batch the weights at the start of the update are the current ones: `old`
is the detached log-prob itself and costs no forward of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch

from learner.config import Kl, Loss
from learner.maths import losses
from learner.training.batch import MicroBatch

Stats = dict[str, torch.Tensor]
"""Scalars of one micro-batch: names that begin with "max_" are maximised over micro-batches and
ranks, all others are summed; divisions come last (see `metrics`). The names follow from the
settings alone, never from the rows: ranks reduce them together."""

Objective = Callable[[MicroBatch, torch.Tensor, torch.Tensor], tuple[torch.Tensor, Stats]]
"""(micro-batch, [n] log-probs, [n] entropies) -> ([n] token losses before weighing, stats)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyObjective:
    """Clipped policy loss with one correction and an optional KL term."""

    loss: Loss
    kl: Kl
    correction: Literal["bypass", "token_truncate", "decoupled"]

    def __call__(
        self, batch: MicroBatch, logp: torch.Tensor, entropy: torch.Tensor
    ) -> tuple[torch.Tensor, Stats]:
        start = batch.old if batch.old is not None else logp.detach()
        old = batch.behaviour if self.correction == "bypass" else start
        clip = losses.ppo_clip(
            logp,
            old,
            batch.advantage,
            clip_low=self.loss.clip_low,
            clip_high=self.loss.clip_high,
            dual_clip=self.loss.dual_clip,
        )
        token_loss = clip.loss
        stats = gap_stats(batch, logp, entropy)
        if self.correction != "bypass":
            cap = self.loss.truncate
            mode: Literal["truncate", "mask"] = "truncate"
            if self.correction == "decoupled":
                cap, mode = self.loss.decoupled_cap, self.loss.decoupled_cap_mode
            weight = losses.behaviour_weight(start, batch.behaviour, cap=cap, cap_mode=mode)
            token_loss = weight * token_loss
            stats["weight"] = weight.sum()
            stats["weight_squared"] = weight.square().sum()
            stats["weight_capped"] = (losses.importance(start, batch.behaviour) > cap).sum()
        if self.kl.coefficient > 0:
            # A micro-batch without rows has no reference, and still the names of all others.
            reference = batch.reference if len(logp) else torch.zeros_like(logp)
            if reference is None:
                raise ValueError("a KL term needs rows that were scored by the reference")
            distance = losses.kl(logp, reference, self.kl.estimator)
            token_loss = token_loss + self.kl.coefficient * distance
            stats["kl_reference"] = distance.detach().sum()
        stats["clipped"] = clip.clipped.sum()
        stats["dual_clipped"] = clip.dual_clipped.sum()
        stats["ratio"] = clip.ratio.detach().sum()
        return token_loss, stats


def imitation(
    _batch: MicroBatch, logp: torch.Tensor, _entropy: torch.Tensor
) -> tuple[torch.Tensor, Stats]:
    """Negative log-likelihood of the targets (SFT)."""
    return -logp, {}


@torch.no_grad()
def gap_stats(batch: MicroBatch, logp: torch.Tensor, entropy: torch.Tensor) -> Stats:
    """Entropy, and how far sampler and learner disagree.

    The gap of fresh tokens compares the same weights on both sides; of all tokens it also holds
    what the policy moved since.
    """
    difference = logp.detach() - batch.behaviour
    gap = difference.abs()
    # Not gap[batch.fresh]: its size would be a number that the host has to wait for.
    fresh = torch.where(batch.fresh, gap, 0.0)
    zero = gap.new_zeros(())
    return {
        "tokens": gap.new_full((), gap.numel()),
        "entropy": entropy.sum(),
        "gap": gap.sum(),
        "max_gap": gap.max() if gap.numel() else zero,
        "fresh_tokens": batch.fresh.sum(),
        "fresh_gap": fresh.sum(),
        "max_fresh_gap": fresh.max() if gap.numel() else zero,
        "kl_rollout_k1": -difference.sum(),
        "kl_rollout_k3": (difference.clamp(-20, 20).exp() - 1 - difference).sum(),
    }
