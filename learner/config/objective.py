"""The objective: advantages, credit of turns, loss, correction, KL to the first policy, teachers.

A table's `summary` is its part of the line that `engine check` prints.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from toolwright.credit.advantages import Singleton, Std
from toolwright.credit.corrections import CORRECTIONS, CorrectionMode
from toolwright.credit.estimators import ESTIMATORS, EstimatorName
from toolwright.credit.losses import (
    AGGREGATIONS,
    CLIP_KEYS,
    LOSSES,
    AggregationName,
    KlName,
    LossName,
)
from toolwright.credit.turns import (
    PADDED_TURNS,
    Branches,
    Scope,
    Several,
    TurnsBy,
    TurnSingleton,
)
from toolwright.recipe import Table
from toolwright.recipe.models.spelling import is_url, url_fault
from toolwright.recipe.models.table import OfKind


class Advantage(Table):
    """From rewards to advantages."""

    estimator: EstimatorName = "grpo"
    """Estimator of the advantages."""
    std: Std = "sample"
    """With `grpo`, standard deviation that divides a difference: with n, n-1, or no division."""
    eps: float = Field(default=1e-6, ge=0)
    """Number added to the standard deviation."""
    singleton: Singleton = "zero"
    """With `grpo`, advantage of a lone member: 0, or its reward."""
    discount: float = Field(default=1.0, ge=0, le=1)
    """With `reinforce_pp`, discount of the reward for each token."""
    per_data_source: bool = False
    """Comparisons over the batch stay within each `data_source`."""
    weights: dict[str, Annotated[float, Field(ge=0, allow_inf_nan=False)]] = Field(
        default_factory=dict
    )
    """Factor on the advantages by `data_source`; others have 1, and 0 teaches nothing."""
    zero_groups: Literal["count", "drop"] = "count"
    """Groups with one reward: their tokens count in the mean, or leave the batch."""

    synonyms: ClassVar = "advantage"

    @property
    def summary(self) -> str:
        settings = ESTIMATORS[self.estimator].settings.format(
            deviation="no" if self.std == "none" else self.std, discount=self.discount
        )
        weighed = f", weights {self.weights}" if self.weights else ""
        return f"advantages {self.estimator}{settings}{weighed}"


class Credit(Table):
    """Credit of single turns, in addition to that of their trajectory. It needs parts of the reward
    with a turn."""

    turns: TurnsBy = "none"
    """Turns that a turn's return is compared with: of the same anchor, number (`"position"`) or
    group. `"alone"`: the return itself. `"released"`: as SEARL's code."""
    weight: float = Field(default=1.0, ge=0)
    """Factor on a turn's advantage."""
    discount: float = Field(default=0.5, ge=0, le=1)
    """Discount of a later turn's reward in a return, for each turn."""
    outcome_in_return: bool = False
    """The trajectory's reward counts in the return of its last turn."""
    count_in_reward: bool = False
    """Rewards of turns also count in the trajectory's own."""
    std: Std = "population"
    """Standard deviation over the compared turns, as in [learner.advantage]."""
    singleton: TurnSingleton = "zero"
    """Value of a turn without others to compare with: 0, its return, or its comparison over the
    batch."""
    scope: Scope = "prompt"
    """Turns are compared within their group, or over the batch."""
    several: Several = "mean"
    """Combination of the values of a turn's anchors."""
    ignore: tuple[str, ...] = ()
    """Anchors without effect."""
    first_turn: bool = False
    """All first turns share an anchor, as plans do."""
    padded_turns: int = Field(default=PADDED_TURNS, ge=1)
    """With `"released"`, turns that a trajectory's returns are averaged over."""
    branches: Branches = "soft"
    """Tokens that branches share have each branch's advantage, or the mean in each."""

    synonyms: ClassVar = "credit"

    @property
    def summary(self) -> str:
        also = ", their rewards in the trajectory's" if self.count_in_reward else ""
        if self.turns == "none":
            return f"no credit of turns{also}"
        how = f"weight {self.weight:g}, discount {self.discount:g}"
        by = "each alone" if self.turns == "alone" else f"by {self.turns}"
        return f"credit of turns {by} ({how}{also})"


PPO = LOSSES["ppo"].clip
WIDEST_SEQUENCE_CLIP = 0.1
"""The mean log-ratio of a sequence hardly moves: a wider range never decides anything."""


class Loss(Table):
    """The policy loss, and the mean over its tokens. Bounds and aggregation that the recipe leaves
    out are those of the kind; the defaults here are those of `"ppo"`."""

    kind: LossName = "ppo"
    """Loss of a token."""
    clip_low: float = Field(default=PPO["clip_low"], ge=0)
    """Lower bound of the ratio is `1 - clip_low`, for `"gmpo"` `exp(-clip_low)`. 1 is no lower
    bound."""
    clip_high: float = Field(default=PPO["clip_high"], ge=0)
    """Upper bound of the ratio is `1 + clip_high`, for `"gmpo"` `exp(clip_high)`."""
    dual_clip: float = Field(default=PPO["dual_clip"], ge=0)
    """With `"ppo"`, the loss of a negative advantage is at most `-A * dual_clip`. Above 1, or 0 for
    none."""
    tau_positive: float = Field(default=1.0, gt=0)
    """Slope of the gate of `"sapo"` for positive advantages."""
    tau_negative: float = Field(default=1.05, gt=0)
    """Slope for the other advantages."""
    entropy: float = Field(default=0.0, ge=0)
    """Bonus on the entropy of a trained token's distribution."""
    aggregation: AggregationName = "token-mean"
    """Mean over all tokens of the batch, or over sequences of their mean or sum, or a sum divided
    by `norm`."""
    unit: Literal["trajectory", "sequence"] = "trajectory"
    """What a mean over sequences counts: trajectories with all their sequences, or single
    sequences."""
    norm: float = Field(default=1.0, gt=0)
    """Divisor of `"seq-sum-token-sum-norm"`: for Dr. GRPO the response limit times the trajectories
    of an update."""
    per_task: bool = True
    """With [tasks.NAME]: means within each task, then added up by the tasks' weights. `false`: over
    the whole batch."""

    rules: ClassVar = tuple(OfKind(key) for key in (*CLIP_KEYS, "aggregation"))
    synonyms: ClassVar = "loss"

    @property
    def summary(self) -> str:
        entry = LOSSES[self.kind]
        low, high = entry.clip_range(self.clip_low, self.clip_high)
        settings = entry.settings.format(
            low=low,
            high=high,
            dual=f", dual clip {self.dual_clip:g}" if self.dual_clip else ", no dual clip",
            positive=self.tau_positive,
            negative=self.tau_negative,
        )
        norm = f" {self.norm:g}" if "norm" in AGGREGATIONS[self.aggregation].reads else ""
        of_each = "unit" in AGGREGATIONS[self.aggregation].reads and self.unit == "sequence"
        unit = " over single sequences" if of_each else ""
        bonus = f", entropy bonus {self.entropy:g}" if self.entropy else ""
        return f"loss {self.kind}{settings}, {self.aggregation}{norm}{unit}{bonus}"

    @model_validator(mode="before")
    @classmethod
    def _defaults_of_the_kind(cls, given: Any) -> Any:
        if not isinstance(given, dict):
            return given
        entry = LOSSES.get(str(given.get("kind", "ppo")))
        return {**(entry.defaults if entry is not None else {}), **given}

    @model_validator(mode="after")
    def _bounds_fit_the_kind(self) -> Loss:
        entry, low, high = LOSSES[self.kind], self.clip_low, self.clip_high
        for key in CLIP_KEYS:
            if getattr(self, key) and key not in entry.clip:
                instead = f", only {' and '.join(entry.keys)}" if entry.keys else ""
                raise ValueError(f"kind = {self.kind!r} reads no {key}{instead}: leave {key} out")
        if 0 < self.dual_clip <= 1:
            raise ValueError(f"dual_clip = {self.dual_clip} must be above 1, or 0 for no dual clip")
        if entry.sequence_range and max(low, high) > WIDEST_SEQUENCE_CLIP:
            raise ValueError(
                f"clip_low = {low:g}, clip_high = {high:g} with kind = {self.kind!r} bound the "
                "mean ratio of a whole sequence, which hardly leaves 1: leave both out for its "
                f"paper's {entry.clip['clip_low']:g} and {entry.clip['clip_high']:g}, or set at "
                f"most {WIDEST_SEQUENCE_CLIP}"
            )
        if low > 1 and not entry.log_range:
            raise ValueError(
                f"clip_low = {low:g} puts the lower bound 1 - clip_low below 0, where no ratio "
                "is: set 1 for no lower bound"
            )
        return self


class Reject(Table):
    """A bound on the divergence between sampler and learner. A sequence that breaks it leaves the
    batch."""

    statistic: Literal["k1", "k2", "k3"]
    """Divergence of a token: log rho, (log rho)²/2, or rho - 1 - log rho."""
    over: Literal["sum", "mean", "max"]
    """Combination of the sequence's tokens."""
    upper: float = Field(gt=0)
    """Largest value that stays. With `"k1"` it bounds rho itself."""
    lower: float = Field(default=0.0, ge=0)
    """With `"k1"`, smallest rho that stays; 0 is `1 / upper`."""

    @property
    def low(self) -> float:
        """Lower bound of k1."""
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
    """Bounds of `run.correction`. rho is a token's probability by the learner at the start of the
    update over the sampler's."""

    upper: float = Field(default=2.0, ge=1)
    """Upper bound of `token_truncate`, `token_mask`, `seq_truncate` and `geo_mask`."""
    lower: float = Field(default=0.0, ge=0, le=1)
    """Lower bound of `token_mask` and `geo_mask`; 0 is `1 / upper`."""
    decoupled_cap: float = Field(default=5.0, gt=0)
    """Cap of the weight of `decoupled`."""
    decoupled_cap_mode: Literal["truncate", "mask"] = "truncate"
    """A weight above the cap is cut to it, or set to 0."""
    veto: float = Field(default=0.0, ge=0, lt=1)
    """A token with a smaller rho removes its sequence, in any mode; 1e-4 is usual, 0 is off."""
    reject: tuple[Reject, ...] = ()
    """Bounds that each sequence must pass, in any mode."""

    @property
    def low(self) -> float:
        """Lower bound of the mask modes."""
        return self.lower or 1 / self.upper

    def summary(self, mode: CorrectionMode) -> str:
        """The mode with the bounds that it reads, and what leaves the batch in any mode."""
        bounds = CORRECTIONS[mode].settings.format(
            upper=self.upper, low=self.low, cap=self.decoupled_cap, cap_mode=self.decoupled_cap_mode
        )
        veto = f", veto below {self.veto:g}" if self.veto else ""
        bound = "bound" if len(self.reject) == 1 else "bounds"
        rejects = f", {len(self.reject)} {bound} on sequences" if self.reject else ""
        return f"correction {mode}{bounds}{veto}{rejects}"


class Kl(Table):
    """KL term to the policy at the start of the run."""

    coefficient: float = Field(default=0.0, ge=0)
    """Weight of the term. 0 loads no reference model."""
    estimator: KlName = "k3"
    """Estimator, with d = logp - reference: d, d²/2, exp(-d) - 1 + d, the value of k3 with the
    gradient of k2, or |d|."""
    place: Literal["loss", "reward"] = "loss"
    """A term of the loss, or d of each token taken off the reward, whatever the estimator."""

    synonyms: ClassVar = "kl"

    @property
    def summary(self) -> str:
        if not self.coefficient:
            return "no KL"
        how = f"{self.estimator} in the loss" if self.place == "loss" else "in the reward"
        return f"KL {self.coefficient:g} {how}"


class Distill(Table):
    """Teachers of `loss.kind = "distill"`, which score the policy's own tokens."""

    teacher: str | None = Field(default=None, min_length=1)
    """Folder of a model with the policy's tokenizer, or URL of its SGLang server. Required unless
    every task has its own."""
    teachers: dict[str, Annotated[str, Field(min_length=1)]] = Field(default_factory=dict)
    """With [tasks.NAME]: folder or URL of a task's own teacher, by task."""
    coefficient: float = Field(default=1.0, gt=0)
    """Factor on `log p_teacher - log p_sampler` of a token."""
    reward: bool = False
    """Add the advantages of the reward to the teacher's."""

    synonyms: ClassVar = "distill"

    @model_validator(mode="after")
    def _servers_have_an_address(self) -> Self:
        for url in self.urls:
            if fault := url_fault(url):
                raise ValueError(fault)
        return self

    @property
    def folders(self) -> frozenset[str]:
        """Folders of the teachers that the learner holds itself."""
        return self._named - self.urls

    @property
    def urls(self) -> frozenset[str]:
        """Servers of the other teachers."""
        return frozenset(filter(is_url, self._named))

    @property
    def _named(self) -> frozenset[str]:
        return frozenset(filter(None, (self.teacher, *self.teachers.values())))

    def of_task(self, task: str) -> str | None:
        """Folder or URL of the task's teacher; None without one. task: "" if the recipe has one
        task."""
        return self.teachers.get(task, self.teacher)

    def fault(self, tasks: Sequence[str]) -> str | None:
        """A sentence if the teachers do not fit the recipe's tasks; else None."""
        if unknown := sorted(self.teachers.keys() - set(tasks)):
            return f"learner.distill.teachers names {unknown[0]!r}, which is not under [tasks]"
        without = [task for task in tasks if self.of_task(task) is None]
        if not without:
            return None
        return (
            f"task {without[0]!r} has no teacher: set learner.distill.teachers.{without[0]}, or "
            "learner.distill.teacher for all tasks without their own"
        )

    @property
    def summary(self) -> str:
        own = [f"{named} for {task}" for task, named in self.teachers.items()]
        named = ", ".join([*([self.teacher] if self.teacher else []), *own])
        added = "added to the reward's" if self.reward else "without the reward"
        return f"teacher {named}, coefficient {self.coefficient:g}, {added}"
