"""What a micro-batch contributes to the loss, and what it tells the metrics.

Puts the pure functions of `losses` and `correction` together as the recipe says. Three log-probs of
a token meet: the sampler's (roll), the learner's at the start of the update (old), the current one
(new). `bypass` takes the ratio against roll; every other mode takes it against old, and corrects
for old against roll by a weight or by what it left out of the batch (see `maths.correction`).
"reinforce" has no ratio: its weight compares new with roll, cut at the bound, in bypass too.

With one optimizer step a batch the weights at the start of the update are the current ones: `old`
is the detached log-prob itself and costs no forward of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch

from learner.config.objective import Correction, Kl, Loss
from learner.maths import correction, losses
from learner.model.head import Entropy
from learner.training.batch import MicroBatch
from toolwright.recipe.models.shared_tables import CorrectionMode

Stats = dict[str, torch.Tensor]
"""Scalars of one micro-batch: names that begin with "max_" are maximised over micro-batches and
ranks, all others are summed; divisions come last (see `metrics`). The names follow from the
settings alone, never from the rows: ranks reduce them together."""

Objective = Callable[[MicroBatch, torch.Tensor, torch.Tensor], tuple[torch.Tensor, Stats]]
"""(micro-batch, [n] log-probs, [n] entropies) -> ([n] token losses before weighing, stats)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyObjective:
    """A policy loss with one correction, an optional KL term and an optional entropy bonus.

    tasks: names of several, each of which has stats of its own beside those of all.
    """

    loss: Loss
    kl: Kl
    correction: CorrectionMode
    bounds: Correction = field(default_factory=Correction)
    tasks: tuple[str, ...] = ()

    @property
    def entropy(self) -> Entropy:
        """What the objective does with entropies."""
        return "loss" if self.loss.entropy > 0 else "metric"

    @property
    def moves_all_rows(self) -> bool:
        """Whether a row without an advantage moves the weights too."""
        return self.kl.coefficient > 0 or self.loss.entropy > 0

    @property
    def leaves_out(self) -> bool:
        """Whether rows have to be scored and judged before the batch's means are fixed."""
        return correction.leaves_out(self.correction, self.bounds)

    @property
    def reads_old(self) -> bool:
        """Whether the loss compares with the weights at the start of the update."""
        return self.correction != "bypass" and self.loss.kind != "reinforce"

    def __call__(
        self, batch: MicroBatch, logp: torch.Tensor, entropy: torch.Tensor
    ) -> tuple[torch.Tensor, Stats]:
        start = batch.old if batch.old is not None else logp.detach()
        found = self._policy_loss(
            batch, logp, batch.behaviour if self.correction == "bypass" else start
        )
        token_loss = found.loss
        told = {"tokens": torch.ones_like(logp)}
        # What judged rows were compared by is told by their scoring, left out ones included.
        stats = token_stats(logp, entropy)
        if not self.leaves_out:
            stats |= gap_stats(start, batch.behaviour, batch.fresh)
        if self.correction != "bypass" or self.loss.kind == "reinforce":
            weight, capped = self._weight(batch, logp, start)
            token_loss = weight * token_loss
            stats["weight"] = weight.sum()
            stats["weight_squared"] = weight.square().sum()
            stats["weight_capped"] = capped.sum()
        if self.kl.coefficient > 0:
            # A micro-batch without rows has no reference, and still the names of all others.
            reference = batch.reference if len(logp) else torch.zeros_like(logp)
            if reference is None:
                raise ValueError("a KL term needs rows that were scored by the reference")
            distance = losses.kl(logp, reference, self.kl.estimator)
            token_loss = token_loss + self.kl.coefficient * distance
            stats["kl_reference"] = distance.detach().sum()
            told["kl_reference"] = distance
        if self.loss.entropy > 0:
            token_loss = token_loss - self.loss.entropy * entropy
        stats["clipped_above"] = found.above.sum()
        stats["clipped_below"] = found.below.sum()
        stats["dual_clipped"] = found.dual.sum()
        stats["ratio"] = found.ratio.detach().sum()
        if self.tasks:
            told["entropy"] = entropy
            told["loss"] = token_loss * batch.weight
            told["clipped"] = (found.above | found.below).to(token_loss.dtype)
            stats |= task_stats(told, batch.task, self.tasks)
        return token_loss, stats

    def _policy_loss(
        self, batch: MicroBatch, logp: torch.Tensor, old: torch.Tensor
    ) -> losses.PolicyLoss:
        loss, advantage = self.loss, batch.advantage
        low, high = loss.clip_low, loss.clip_high
        if loss.kind == "ppo":
            return losses.ppo_clip(
                logp, old, advantage, clip_low=low, clip_high=high, dual_clip=loss.dual_clip
            )
        if loss.kind == "gspo":
            return losses.gspo(logp, old, advantage, batch.row, clip_low=low, clip_high=high)
        if loss.kind == "cispo":
            return losses.cispo(logp, old, advantage, clip_low=low, clip_high=high)
        if loss.kind == "sapo":
            return losses.sapo(
                logp,
                old,
                advantage,
                tau_positive=loss.tau_positive,
                tau_negative=loss.tau_negative,
            )
        if loss.kind == "gmpo":
            return losses.gmpo(logp, old, advantage, batch.row, clip_low=low, clip_high=high)
        return losses.reinforce(logp, advantage)

    def _weight(
        self, batch: MicroBatch, logp: torch.Tensor, start: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        mode = self.correction
        if self.loss.kind == "reinforce":
            start = logp.detach()
            mode = "token_truncate" if mode == "bypass" else mode
        return correction.weights(mode, start, batch.behaviour, batch.row, self.bounds)


def imitation(
    _batch: MicroBatch, logp: torch.Tensor, _entropy: torch.Tensor
) -> tuple[torch.Tensor, Stats]:
    """Negative log-likelihood of the targets (SFT)."""
    return -logp, {}


@torch.no_grad()
def token_stats(logp: torch.Tensor, entropy: torch.Tensor) -> Stats:
    """Tokens and their entropy."""
    return {"tokens": logp.new_full((), logp.numel()), "entropy": entropy.detach().sum()}


@torch.no_grad()
def task_stats(values: Stats, of_token: torch.Tensor, tasks: Sequence[str]) -> Stats:
    """Sums of [n] values over the tokens of each task, as "VALUE/TASK". of_token: [n] places in
    `tasks`."""
    out: Stats = {}
    for name, value in values.items():
        sums = value.new_zeros(len(tasks)).index_add(0, of_token, value.detach())
        out |= {f"{name}/{task}": sums[place] for place, task in enumerate(tasks)}
    return out


@torch.no_grad()
def gap_stats(logp: torch.Tensor, behaviour: torch.Tensor, fresh: torch.Tensor) -> Stats:
    """How far sampler and learner disagree on [n] tokens.

    logp: by the learner's weights at the start of the update where they are known. behaviour: by
    the sampler. The gap of fresh tokens compares the same weights on both sides; of all tokens it
    also holds what the policy moved since.
    """
    # Sums over masks, not selections: a selection makes the host wait for the device.
    difference = logp.detach() - behaviour
    gap = difference.abs()
    fresh_gap = torch.where(fresh, gap, torch.zeros_like(gap))
    ratio = losses.limited(difference).exp()
    zero = gap.new_zeros(())
    return {
        "compared": gap.new_full((), gap.numel()),
        "gap": gap.sum(),
        "max_gap": gap.max() if gap.numel() else zero,
        "max_rho": ratio.max() if gap.numel() else zero,
        "fresh_tokens": fresh.sum(),
        "fresh_gap": fresh_gap.sum(),
        "max_fresh_gap": fresh_gap.max() if gap.numel() else zero,
        "rollout_logp": behaviour.sum(),
        "kl_rollout_k1": -difference.sum(),
        "kl_rollout_k3": (ratio - 1 - difference).sum(),
    }
