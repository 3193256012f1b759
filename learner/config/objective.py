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
    """Rewards to advantages: the estimator, and factors of data sources in a mixed batch."""

    estimator: EstimatorName = "grpo"
    std: Std = "sample"
    eps: float = Field(default=1e-6, ge=0)
    singleton: Singleton = "zero"
    discount: float = Field(default=1.0, ge=0, le=1, description="of reinforce_pp, for each token")
    per_data_source: bool = Field(
        default=False, description="comparisons over the batch stay within each data_source"
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
    def summary(self) -> str:
        settings = ESTIMATORS[self.estimator].settings.format(
            deviation="no" if self.std == "none" else self.std, discount=self.discount
        )
        weighed = f", weights {self.weights}" if self.weights else ""
        return f"advantages {self.estimator}{settings}{weighed}"


class Credit(Table):
    """Credit of single turns, in addition to that of their trajectory."""

    turns: TurnsBy = Field(
        default="none", description="the turns that a turn's return is compared with"
    )
    weight: float = Field(default=1.0, ge=0, description="factor on a turn's advantage")
    discount: float = Field(default=0.5, ge=0, le=1, description="of turns' rewards, for each turn")
    outcome_in_return: bool = Field(
        default=False, description="the trajectory's reward counts in the return of its last turn"
    )
    count_in_reward: bool = Field(
        default=False, description="rewards of turns also count in the trajectory's own"
    )
    std: Std = "population"
    singleton: TurnSingleton = "zero"
    scope: Scope = Field(
        default="prompt", description="turns are compared within their group, or over the batch"
    )
    several: Several = Field(default="mean", description="combines the values of a turn's anchors")
    ignore: tuple[str, ...] = Field(default=(), description="anchors without effect")
    first_turn: bool = Field(
        default=False, description="all first turns have an anchor in common, as plans do"
    )
    padded_turns: int = Field(
        default=PADDED_TURNS, ge=1, description="turns that SEARL's released code averages over"
    )
    branches: Branches = Field(
        default="soft", description="hard: tokens that branches share get their mean advantage"
    )

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
    """The policy loss, and the aggregation of its tokens.

    Bounds and aggregation that the recipe leaves out are those of the kind (`LOSSES`).
    """

    kind: LossName = "ppo"
    clip_low: float = Field(default=PPO["clip_low"], ge=0, description="lower bound 1 - clip_low")
    clip_high: float = Field(
        default=PPO["clip_high"], ge=0, description="upper bound 1 + clip_high"
    )
    dual_clip: float = Field(
        default=PPO["dual_clip"], ge=0, description="ppo: A < 0 costs at most -A times it; 0 = none"
    )
    tau_positive: float = Field(default=1.0, gt=0, description="sapo's gate for A > 0")
    tau_negative: float = Field(default=1.05, gt=0, description="sapo's gate for A <= 0")
    entropy: float = Field(default=0.0, ge=0, description="bonus on a token's entropy")
    aggregation: AggregationName = "token-mean"
    unit: Literal["trajectory", "sequence"] = Field(
        default="trajectory",
        description="of means over sequences: a trajectory's sequences share one weight, or not",
    )
    norm: float = Field(default=1.0, gt=0, description="the constant of seq-sum-token-sum-norm")
    per_task: bool = Field(
        default=True,
        description="of several tasks: means within each, then their weighed sum; false = over all",
    )

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
    """A bound on the divergence between sampler and learner for a sequence."""

    statistic: Literal["k1", "k2", "k3"] = Field(
        description="a token's log rho, half its square, or rho - 1 - log rho"
    )
    over: Literal["sum", "mean", "max"] = Field(
        description="how the sequence's tokens are combined"
    )
    upper: float = Field(gt=0, description="largest that stays; k1: of rho itself")
    lower: float = Field(default=0.0, ge=0, description="k1: smallest rho; 0 = 1 / upper")

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
    """Bounds of run.correction, and bounds that drop sequences in any mode.

    rho is a token's probability by the learner at the start of the update, over the sampler's.
    """

    upper: float = Field(default=2.0, ge=1, description="bound C of the token, seq and geo modes")
    lower: float = Field(
        default=0.0, ge=0, le=1, description="lower bound of the mask modes; 0 = 1 / upper"
    )
    decoupled_cap: float = Field(default=5.0, gt=0, description="cap of decoupled's weight")
    decoupled_cap_mode: Literal["truncate", "mask"] = "truncate"
    veto: float = Field(
        default=0.0, ge=0, lt=1, description="a token with a smaller rho drops its sequence"
    )
    reject: tuple[Reject, ...] = Field(default=(), description="bounds that a sequence must pass")

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
    """KL to the policy at the start of the run; 0 = no reference model."""

    coefficient: float = Field(default=0.0, ge=0)
    estimator: KlName = "k3"
    place: Literal["loss", "reward"] = Field(
        default="loss", description="a term of the loss, or k1 of each token off its reward"
    )

    synonyms: ClassVar = "kl"

    @property
    def summary(self) -> str:
        if not self.coefficient:
            return "no KL"
        how = f"{self.estimator} in the loss" if self.place == "loss" else "in the reward"
        return f"KL {self.coefficient:g} {how}"


class Distill(Table):
    """Teachers of `loss.kind = "distill"`, which score the policy's own tokens."""

    teacher: str | None = Field(
        default=None,
        min_length=1,
        description="folder of a model with the policy's tokenizer, or URL of its SGLang server",
    )
    teachers: dict[str, Annotated[str, Field(min_length=1)]] = Field(
        default_factory=dict, description="task = folder or URL of its own teacher"
    )
    coefficient: float = Field(
        default=1.0, gt=0, description="factor on log p_teacher - log p_sampler of a token"
    )
    reward: bool = Field(default=False, description="advantages of the reward are added")

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
