"""Policy losses, aggregations and KL estimators: one entry each.

The functions of a loss are in `learner.maths.losses`, one file each under the entry's name. Those
of aggregations and KL estimators are in `learner.maths.aggregation` and `learner.maths.kl`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from toolwright.credit.entries import Entry

AGGREGATIONS: Mapping[str, Entry] = {
    "token-mean": Entry(formula="mean over the batch's tokens"),
    "seq-mean-token-mean": Entry(
        formula="mean over trajectories of the mean over tokens", reads=("unit",)
    ),
    "seq-mean-token-sum": Entry(
        formula="mean over trajectories of the sum over tokens", reads=("unit",)
    ),
    "seq-sum-token-sum-norm": Entry(
        formula="sum over the batch's tokens, divided by norm",
        reads=("norm",),
        also=("seq_mean_token_sum_norm",),
    ),
}
KL_ESTIMATORS: Mapping[str, Entry] = {
    "k1": Entry(formula="d, with d = logp - reference", also=("kl",)),
    "k2": Entry(formula="d^2 / 2", also=("mse",)),
    "k3": Entry(formula="exp(-d) - 1 + d", also=("low_var_kl",)),
    "k3+": Entry(formula="value of k3, gradient of k2", also=("low_var_kl+",)),
    "abs": Entry(formula="|d|"),
}

CLIP_KEYS = ("clip_low", "clip_high", "dual_clip")


@dataclass(frozen=True, slots=True, kw_only=True)
class LossEntry(Entry):
    """One policy loss. `reads` and `clip` are keys of [learner.loss]."""

    title: str
    """Name in its paper."""
    aggregation: str
    """Aggregation if the recipe names no other."""
    clip: Mapping[str, float] = field(default_factory=dict)
    """Clip keys that the loss reads, with their defaults."""
    settings: str = ""
    """Template of the settings, for the line in force: {low}, {high}, {dual}, {positive},
    {negative}."""
    log_range: bool = False
    """Whether the clip bounds the logarithm of the ratio, exp(-low) to exp(high)."""
    sequence_range: bool = False
    """Whether the clip bounds the mean ratio of a whole sequence."""
    has_ratio: bool = True
    """Whether the loss compares the policy with an earlier one. If not, a correction's weight
    compares the policy with the sampler."""

    @property
    def keys(self) -> tuple[str, ...]:
        return (*self.clip, *self.reads)

    @property
    def defaults(self) -> dict[str, float | str]:
        """Values of the keys that depend on the loss. A clip key that it does not read is 0."""
        clip = {key: self.clip.get(key, 0.0) for key in CLIP_KEYS}
        return {**clip, "aggregation": self.aggregation}

    def clip_range(self, low: float, high: float) -> tuple[float, float]:
        """(lowest, highest) ratio for the recipe's clip_low and clip_high."""
        if self.log_range:
            return math.exp(-low), math.exp(high)
        return 1 - low, 1 + high


LOSSES: Mapping[str, LossEntry] = {
    "ppo": LossEntry(
        title="PPO",
        formula="max(-A r, -A clip(r)), with a dual clip",
        aggregation="token-mean",
        clip={"clip_low": 0.2, "clip_high": 0.28, "dual_clip": 3.0},  # DAPO's bounds
        also=("vanilla",),
        settings=" (ratio {low:.6g} to {high:.6g}{dual})",
    ),
    "gspo": LossEntry(
        title="GSPO",
        formula="max(-A s, -A clip(s)), with s the sequence's mean ratio",
        aggregation="seq-mean-token-mean",
        clip={"clip_low": 3e-4, "clip_high": 4e-4},
        settings=" (mean ratio {low:.6g} to {high:.6g})",
        sequence_range=True,
    ),
    "cispo": LossEntry(
        title="CISPO",
        formula="-sg(clip(r)) A logp",
        aggregation="token-mean",
        clip={"clip_low": 1.0, "clip_high": 0.28},
        settings=" (ratio {low:.6g} to {high:.6g})",
    ),
    "sapo": LossEntry(
        title="SAPO",
        formula="-A sigmoid(tau (r - 1)) 4 / tau",
        aggregation="seq-mean-token-mean",
        reads=("tau_positive", "tau_negative"),
        settings=" (tau {positive:g} and {negative:g})",
    ),
    "gmpo": LossEntry(
        title="GMPO",
        formula="-A times the geometric mean of the sequence's clipped ratios",
        aggregation="seq-mean-token-mean",
        clip={"clip_low": 0.4, "clip_high": 0.4},
        also=("geo_mean",),
        settings=" (ratio {low:.3g} to {high:.3g})",
        log_range=True,
    ),
    "reinforce": LossEntry(
        title="REINFORCE",
        formula="-A logp",
        aggregation="token-mean",
        also=("pg",),
        has_ratio=False,
    ),
    "distill": LossEntry(
        title="On-policy distillation",
        formula="-A r, with A = coefficient (log p_teacher - log p_sampler)",
        aggregation="token-mean",
        also=("opd", "on_policy_distillation"),
    ),
}

if TYPE_CHECKING:
    AggregationName = str
    KlName = str
    LossName = str
else:
    AggregationName = Literal[tuple(AGGREGATIONS)]
    KlName = Literal[tuple(KL_ESTIMATORS)]
    LossName = Literal[tuple(LOSSES)]
"""Types of the keys `learner.loss.aggregation`, `learner.kl.estimator` and `learner.loss.kind`."""
