"""What is maximised: advantages, credit of turns, loss, correction, distance to the start.

`words` of a table are what `engine check` says of it.
"""

from __future__ import annotations

import math
from itertools import chain
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, model_validator

from toolwright.recipe import Table
from toolwright.recipe.models.shared_tables import CorrectionMode
from toolwright.recipe.models.table import OfKind

Aggregation = Literal[
    "token-mean", "seq-mean-token-mean", "seq-mean-token-sum", "seq-sum-token-sum-norm"
]


class Advantage(Table):
    """Rewards to advantages: the estimator, and what single tasks weigh in a mixed batch."""

    estimator: Literal["grpo", "rloo", "opo", "reinforce_pp", "reinforce_pp_baseline"] = "grpo"
    std: Literal["population", "sample", "none"] = "sample"
    eps: float = Field(default=1e-6, ge=0)
    singleton: Literal["zero", "raw"] = "zero"
    discount: float = Field(default=1.0, ge=0, le=1, description="of reinforce_pp, a token")
    per_data_source: bool = Field(
        default=False, description="what is compared over the batch, within each data_source alone"
    )
    weights: dict[str, Annotated[float, Field(ge=0, allow_inf_nan=False)]] = Field(
        default_factory=dict, description="data_source = factor on its advantages; others have 1"
    )
    zero_groups: Literal["count", "drop"] = Field(
        default="count",
        description="groups without a signal: tokens count in the mean, or leave the batch",
    )

    synonyms: ClassVar = "advantage"

    @property
    def words(self) -> str:
        own = {
            "grpo": f" with {'no' if self.std == 'none' else self.std} deviation",
            "reinforce_pp": f" with discount {self.discount:g}",
        }
        weighed = f", weights {self.weights}" if self.weights else ""
        return f"advantages {self.estimator}{own.get(self.estimator, '')}{weighed}"


class Credit(Table):
    """What turns earn on their own, beside the trajectory that they belong to."""

    turns: Literal["none", "anchor", "position", "group", "alone"] = Field(
        default="none", description="what the return of a turn is compared with"
    )
    weight: float = Field(default=1.0, ge=0, description="of a turn's advantage in the sum")
    discount: float = Field(default=0.5, ge=0, le=1, description="a turn, of rewards of turns")
    outcome_in_return: bool = Field(
        default=False, description="the trajectory's reward counts in the return of its last turn"
    )
    count_in_reward: bool = Field(
        default=False, description="rewards of turns also count in the trajectory's own"
    )
    std: Literal["population", "sample", "none"] = "population"
    singleton: Literal["zero", "raw", "batch"] = "zero"
    scope: Literal["prompt", "batch"] = Field(
        default="prompt", description="turns are compared within their group, or over the batch"
    )
    several: Literal["mean", "sum"] = Field(default="mean", description="of a turn's anchors")
    ignore: tuple[str, ...] = Field(default=(), description="anchors that count for nothing")
    first_turn: bool = Field(
        default=False, description="all first turns have an anchor in common, as plans do"
    )
    branches: Literal["soft", "hard"] = Field(
        default="soft", description="hard: tokens that branches share get their mean advantage"
    )

    synonyms: ClassVar = "credit"

    @property
    def words(self) -> str:
        also = ", their rewards in the trajectory's" if self.count_in_reward else ""
        if self.turns == "none":
            return f"no credit of turns{also}"
        how = f"weight {self.weight:g}, discount {self.discount:g}"
        by = "each alone" if self.turns == "alone" else f"by {self.turns}"
        return f"credit of turns {by} ({how}{also})"


LossKind = Literal["ppo", "gspo", "cispo", "sapo", "gmpo", "reinforce"]

OF_KIND: dict[str, dict[str, float | str]] = {
    "ppo": {"clip_low": 0.2, "clip_high": 0.28, "dual_clip": 3.0, "aggregation": "token-mean"},
    "gspo": {"clip_low": 3e-4, "clip_high": 4e-4, "aggregation": "seq-mean-token-mean"},
    "cispo": {"clip_low": 1.0, "clip_high": 0.28, "aggregation": "token-mean"},
    "sapo": {"aggregation": "seq-mean-token-mean"},
    "gmpo": {"clip_low": 0.4, "clip_high": 0.4, "aggregation": "seq-mean-token-mean"},
    "reinforce": {"aggregation": "token-mean"},
}
"""What a loss has where the recipe does not say: DAPO's bounds for ppo, else those of its paper.
CISPO has no lower bound. A bound that is not here is 0: the loss has none."""

WIDEST_GSPO = 0.1
"""The mean log-ratio of a sequence hardly moves: a wider range never decides anything."""


class Loss(Table):
    """What is minimised, and how tokens are added up.

    Bounds and aggregation that the recipe leaves out are those of the kind (`OF_KIND`).
    """

    kind: LossKind = "ppo"
    clip_low: float = Field(default=0.2, ge=0, description="lower bound 1 - clip_low")
    clip_high: float = Field(default=0.28, ge=0, description="upper bound 1 + clip_high")
    dual_clip: float = Field(
        default=3.0, ge=0, description="ppo: A < 0 costs at most -A times it; 0 = none"
    )
    tau_positive: float = Field(default=1.0, gt=0, description="sapo's gate for A > 0")
    tau_negative: float = Field(default=1.05, gt=0, description="sapo's gate for A <= 0")
    entropy: float = Field(default=0.0, ge=0, description="bonus on a token's entropy")
    aggregation: Aggregation = "token-mean"
    norm: float = Field(default=1.0, gt=0, description="the constant of seq-sum-token-sum-norm")
    per_task: bool = Field(
        default=True,
        description="of several tasks: means within each, then their weighed sum; false = over all",
    )

    rules: ClassVar = tuple(OfKind(key) for key in dict.fromkeys(chain(*OF_KIND.values())))
    synonyms: ClassVar = "loss"

    @property
    def words(self) -> str:
        low, high = 1 - self.clip_low, 1 + self.clip_high
        if self.kind == "gmpo":
            low, high = math.exp(-self.clip_low), math.exp(self.clip_high)
        dual = f", dual clip {self.dual_clip:g}" if self.dual_clip else ", no dual clip"
        of_kind = {
            "ppo": f" (ratio {low:.6g} to {high:.6g}{dual})",
            "gspo": f" (mean ratio {low:.6g} to {high:.6g})",
            "cispo": f" (ratio {low:.6g} to {high:.6g})",
            "gmpo": f" (ratio {low:.3g} to {high:.3g})",
            "sapo": f" (tau {self.tau_positive:g} and {self.tau_negative:g})",
        }
        norm = f" {self.norm:g}" if self.aggregation == "seq-sum-token-sum-norm" else ""
        bonus = f", entropy bonus {self.entropy:g}" if self.entropy else ""
        return f"loss {self.kind}{of_kind.get(self.kind, '')}, {self.aggregation}{norm}{bonus}"

    @model_validator(mode="before")
    @classmethod
    def _defaults_of_the_kind(cls, given: Any) -> Any:
        if not isinstance(given, dict):
            return given
        none = {"clip_low": 0.0, "clip_high": 0.0, "dual_clip": 0.0}
        own = OF_KIND.get(str(given.get("kind", "ppo")), {})
        return {**none, **own, **given}

    @model_validator(mode="after")
    def _bounds_make_sense(self) -> Loss:
        kind, low, high = self.kind, self.clip_low, self.clip_high
        if kind in ("sapo", "reinforce") and (low or high):
            other = ": its gate is tau_positive and tau_negative" if kind == "sapo" else ""
            raise ValueError(f"kind = {kind!r} has no clip range{other}; leave clip_* out")
        if self.dual_clip and kind != "ppo":
            raise ValueError(f"kind = {kind!r} has no dual clip; leave dual_clip out")
        if 0 < self.dual_clip <= 1:
            raise ValueError(f"dual_clip = {self.dual_clip} has to be above 1, or 0 for none")
        if kind == "gspo" and max(low, high) > WIDEST_GSPO:
            raise ValueError(
                f"clip_low = {low:g}, clip_high = {high:g} with kind = 'gspo' bound the mean ratio "
                f"of a whole sequence, which hardly leaves 1: leave both out for its paper's 3e-4 "
                f"and 4e-4, and take at most {WIDEST_GSPO}"
            )
        if kind in ("ppo", "gspo", "cispo") and low > 1:
            raise ValueError(
                f"clip_low = {low:g} puts the lower bound 1 - clip_low below 0, where no ratio "
                "is: 1 is without a lower bound"
            )
        return self


class Reject(Table):
    """A bound on how far a sequence's sampler and learner may diverge."""

    statistic: Literal["k1", "k2", "k3"] = Field(
        description="a token's log rho, half its square, or rho - 1 - log rho"
    )
    over: Literal["sum", "mean", "max"] = Field(description="of the sequence's tokens")
    upper: float = Field(gt=0, description="largest that stays; k1: of rho itself")
    lower: float = Field(default=0.0, ge=0, description="k1: smallest rho; 0 = 1 / upper")

    @property
    def low(self) -> float:
        """The lower bound of k1."""
        return self.lower or 1 / self.upper

    @model_validator(mode="after")
    def _bounds_make_sense(self) -> Reject:
        if self.statistic != "k1":
            if self.lower:
                raise ValueError(f"lower is for 'k1'; {self.statistic!r} is never below 0")
        elif not self.low <= 1 <= self.upper:
            raise ValueError(
                f"k1 between {self.low:g} and {self.upper:g} rejects sampler and learner that "
                "agree: set lower <= 1 <= upper, they bound the ratio rho and not its logarithm"
            )
        return self


class Correction(Table):
    """Bounds of run.correction, and sequences that are left out in any mode.

    rho is a token's probability by the learner at the start of the update, over the sampler's.
    """

    upper: float = Field(default=2.0, ge=1, description="C of the token, seq and geo modes")
    lower: float = Field(default=0.0, ge=0, le=1, description="of the mask modes; 0 = 1 / upper")
    decoupled_cap: float = Field(default=5.0, gt=0, description="cap of decoupled's weight")
    decoupled_cap_mode: Literal["truncate", "mask"] = "truncate"
    veto: float = Field(
        default=0.0, ge=0, lt=1, description="a token with a smaller rho drops its sequence"
    )
    reject: tuple[Reject, ...] = Field(default=(), description="a sequence has to pass all")

    @property
    def low(self) -> float:
        """The lower bound of the mask modes."""
        return self.lower or 1 / self.upper

    def words(self, mode: CorrectionMode) -> str:
        """Of the mode with the bounds that it reads, and of what is left out in any mode."""
        bounds = {
            "token_truncate": f" at {self.upper:g}",
            "seq_truncate": f" at {self.upper:g}",
            "token_mask": f" outside of {self.low:.3g} to {self.upper:g}",
            "geo_mask": f" outside of {self.low:.3g} to {self.upper:g}",
            "decoupled": f", {self.decoupled_cap_mode} above {self.decoupled_cap:g}",
        }
        veto = f", veto below {self.veto:g}" if self.veto else ""
        bound = "bound" if len(self.reject) == 1 else "bounds"
        rejects = f", {len(self.reject)} {bound} on sequences" if self.reject else ""
        return f"correction {mode}{bounds.get(mode, '')}{veto}{rejects}"


class Kl(Table):
    """Distance to the policy that the run started from; 0 = no reference model at all."""

    coefficient: float = Field(default=0.0, ge=0)
    estimator: Literal["k1", "k2", "k3", "k3+", "abs"] = "k3"
    place: Literal["loss", "reward"] = Field(
        default="loss", description="a term of the loss, or k1 of each token off its reward"
    )

    synonyms: ClassVar = "kl"

    @property
    def words(self) -> str:
        if not self.coefficient:
            return "no KL"
        how = f"{self.estimator} in the loss" if self.place == "loss" else "in the reward"
        return f"KL {self.coefficient:g} {how}"
