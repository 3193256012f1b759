"""The loss and the stats of a micro-batch.

Combines the pure functions of `maths.losses`, `maths.kl` and `maths.correction` as the recipe says.
A token has three log-probs: the sampler's (roll), the learner's at the start of the update (old),
the current one (new). `bypass` takes the ratio against roll. Every other mode takes it against old.
A weight, or dropped tokens, then correct for old against roll (see `maths.correction`). A loss
without a ratio has a weight that compares new with roll, cut at the bound, in bypass too.

With one optimizer step a batch the weights at the start of the update are the current ones: `old`
is the detached log-prob itself and costs no forward of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch

from learner.config.objective import Correction, Kl, Loss
from learner.maths import correction
from learner.maths.kl import kl
from learner.maths.losses import PolicyLoss, Tokens, loss_function
from learner.maths.ratios import limited
from learner.model.head import Entropy
from learner.training.batch import MicroBatch
from toolwright.credit.corrections import CORRECTIONS, CorrectionMode
from toolwright.credit.losses import LOSSES

Stats = dict[str, torch.Tensor]
"""Scalars of one micro-batch. Names that begin with "max_" are maximised over micro-batches and
ranks, all others are summed; divisions come last (see `metrics`). The names depend on the settings
alone, never on the rows: ranks reduce them together."""

Objective = Callable[[MicroBatch, torch.Tensor, torch.Tensor], tuple[torch.Tensor, Stats]]
"""(micro-batch, [n] log-probs, [n] entropies) -> ([n] token losses before weighing, stats)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyObjective:
    """A policy loss with one correction, an optional KL term and an optional entropy bonus."""

    loss: Loss
    kl: Kl
    correction: CorrectionMode
    bounds: Correction = field(default_factory=Correction)
    tasks: tuple[str, ...] = ()
    """Names of several tasks. Each gets stats of its own beside those of the batch."""

    @property
    def entropy(self) -> Entropy:
        """How the objective uses entropies."""
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
        return CORRECTIONS[self.correction].weighs and LOSSES[self.loss.kind].has_ratio

    def __call__(
        self, batch: MicroBatch, logp: torch.Tensor, entropy: torch.Tensor
    ) -> tuple[torch.Tensor, Stats]:
        start = batch.old if batch.old is not None else logp.detach()
        found = self.policy_loss(batch, logp, start)
        token_loss = found.loss
        by_task = {"tokens": torch.ones_like(logp)}
        # Judged rows had their gap stats when they were scored, dropped rows included.
        stats = token_stats(logp, entropy)
        if not self.leaves_out:
            stats |= gap_stats(start, batch.behaviour, batch.fresh)
        if CORRECTIONS[self.correction].weighs or not LOSSES[self.loss.kind].has_ratio:
            weight, capped = self._weight(batch, logp, start)
            token_loss = weight * token_loss
            stats["weight"] = weight.sum()
            stats["weight_squared"] = weight.square().sum()
            stats["weight_capped"] = capped.sum()
        if self.kl.coefficient > 0:
            # A micro-batch without rows has no reference, and must have the same stats as others.
            reference = batch.reference if len(logp) else torch.zeros_like(logp)
            if reference is None:
                raise ValueError("score the rows by the reference before taking a KL term")
            distance = kl(logp, reference, self.kl.estimator)
            token_loss = token_loss + self.kl.coefficient * distance
            stats["kl_reference"] = distance.detach().sum()
            by_task["kl_reference"] = distance
        if self.loss.entropy > 0:
            token_loss = token_loss - self.loss.entropy * entropy
        stats["clipped_above"] = found.above.sum()
        stats["clipped_below"] = found.below.sum()
        stats["dual_clipped"] = found.dual.sum()
        stats["ratio"] = found.ratio.detach().sum()
        if self.tasks:
            by_task["entropy"] = entropy
            by_task["loss"] = token_loss * batch.weight
            by_task["clipped"] = (found.above | found.below).to(token_loss.dtype)
            stats |= task_stats(by_task, batch.task, self.tasks)
        return token_loss, stats

    def policy_loss(self, batch: MicroBatch, logp: torch.Tensor, start: torch.Tensor) -> PolicyLoss:
        """The recipe's loss. start: [n] log-probs at the start of the update."""
        old = start if CORRECTIONS[self.correction].weighs else batch.behaviour
        tokens = Tokens(logp=logp, old=old, advantage=batch.advantage, row=batch.row)
        return loss_function(self.loss.kind)(tokens, self.loss)

    def _weight(
        self, batch: MicroBatch, logp: torch.Tensor, start: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        mode = self.correction
        if not LOSSES[self.loss.kind].has_ratio:
            start = logp.detach()
            mode = mode if CORRECTIONS[mode].weighs else "token_truncate"
        return correction.weights(mode, start, batch.behaviour, batch.row, self.bounds)


def imitation(
    _batch: MicroBatch, logp: torch.Tensor, _entropy: torch.Tensor
) -> tuple[torch.Tensor, Stats]:
    """Negative log-likelihood of the targets (SFT)."""
    return -logp, {}


@torch.no_grad()
def token_stats(logp: torch.Tensor, entropy: torch.Tensor) -> Stats:
    """Number of tokens and the sum of their entropies."""
    return {"tokens": logp.new_full((), logp.numel()), "entropy": entropy.detach().sum()}


@torch.no_grad()
def task_stats(values: Stats, of_token: torch.Tensor, tasks: Sequence[str]) -> Stats:
    """Sums of [n] values over the tokens of each task, as "VALUE/TASK".

    of_token: [n] index in `tasks`.
    """
    out: Stats = {}
    for name, value in values.items():
        sums = value.new_zeros(len(tasks)).index_add(0, of_token, value.detach())
        out |= {f"{name}/{task}": sums[place] for place, task in enumerate(tasks)}
    return out


@torch.no_grad()
def gap_stats(logp: torch.Tensor, behaviour: torch.Tensor, fresh: torch.Tensor) -> Stats:
    """How far sampler and learner disagree on [n] tokens.

    logp: by the learner's weights at the start of the update. behaviour: by the sampler. The gap of
    fresh tokens compares the same weights on both sides. The gap of all tokens also holds what the
    policy moved since.
    """
    # Sums over masks, not selections: a selection makes the host wait for the device.
    difference = logp.detach() - behaviour
    gap = difference.abs()
    fresh_gap = torch.where(fresh, gap, torch.zeros_like(gap))
    ratio = limited(difference).exp()
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
