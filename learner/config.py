"""The recipe's [learner] and [sft] tables.

Importable without torch, so that `engine check` can validate a recipe on a machine without it.
What engine and learner must agree on (steps, batch, staleness, correction) is in [run].
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, get_args

from pydantic import Field, model_validator

from toolwright.recipe import Table

Aggregation = Literal[
    "token-mean", "seq-mean-token-mean", "seq-mean-token-sum", "seq-sum-token-sum-norm"
]

EPOCHS = 2
"""Of imitation where the recipe gives neither epochs nor steps (MTR, section 4.1)."""


class Optimizer(Table):
    """How gradients become updates; rates are peak values of the schedule."""

    kind: Literal["adam", "muon"] = Field(
        default="adam", description="muon: Muon on 2-D weights, Adam on the rest"
    )
    lr: float = Field(
        default=1e-6, ge=0, description="Adam's peak rate; 0 leaves the weights alone"
    )
    muon_lr: float = Field(default=0.02, ge=0, description="Muon's peak rate")
    beta1: float = Field(default=0.9, ge=0, lt=1)
    beta2: float = Field(default=0.95, ge=0, lt=1)
    weight_decay: float = Field(default=0.0, ge=0, description="Adam's; vectors are exempt")
    warmup_steps: int = Field(default=0, ge=0)
    warmup_ratio: float = Field(
        default=0.0, ge=0, le=1, description="warm-up as a share of all steps"
    )
    decay: Literal["constant", "linear", "cosine"] = "constant"
    min_fraction: float = Field(default=0.0, ge=0, le=1, description="of the peak, at the end")
    clip: float = Field(default=1.0, gt=0, description="largest global gradient norm")

    @model_validator(mode="after")
    def _one_warmup(self) -> Optimizer:
        named = {"warmup_steps", "warmup_ratio"} <= self.model_fields_set
        if named and self.warmup_steps and self.warmup_ratio:
            raise ValueError(
                f"warmup_steps = {self.warmup_steps} and warmup_ratio = {self.warmup_ratio:g}: "
                "set one of them to 0"
            )
        return self


class SftOptimizer(Optimizer):
    """The same with the defaults of a fine-tuning: warm-up, then cosine (MTR, section 4.1)."""

    lr: float = Field(default=1e-5, ge=0, description="Adam's peak rate")
    beta2: float = Field(default=0.98, ge=0, lt=1)
    warmup_ratio: float = Field(
        default=0.05, ge=0, le=1, description="of all steps; warmup_steps goes before it"
    )
    decay: Literal["constant", "linear", "cosine"] = "cosine"


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


class Loss(Table):
    """Clipped policy loss (spec 6.4), its aggregation (6.5) and correction (6.7, 6.8)."""

    clip_low: float = Field(default=0.2, ge=0)
    clip_high: float = Field(default=0.28, ge=0)
    dual_clip: float | None = Field(default=3.0, gt=1)
    aggregation: Aggregation = "token-mean"
    norm: float = Field(default=1.0, gt=0, description="the constant of seq-sum-token-sum-norm")
    truncate: float = Field(default=2.0, gt=0, description="cap of token_truncate's weight")
    decoupled_cap: float = Field(default=5.0, gt=0, description="cap of the behaviour weight")
    decoupled_cap_mode: Literal["truncate", "mask"] = "truncate"


class Kl(Table):
    """Distance to the policy that the run started from; 0 = no reference model at all."""

    coefficient: float = Field(default=0.0, ge=0)
    estimator: Literal["k1", "k2", "k3", "abs"] = "k3"
    place: Literal["loss", "reward"] = Field(
        default="loss", description="a term of the loss, or k1 of each token off its reward"
    )


class Parallel(Table):
    """Ranks of one model copy; what is left over of the world size is data parallel."""

    tensor: int = Field(default=1, ge=1)
    pipeline: Literal[1] = 1


Projection = Literal["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]


class Lora(Table):
    """Low-rank adapters are trained, the policy's own weights are not."""

    rank: int = Field(default=16, ge=1, description="of what is added to a matrix")
    alpha: float = Field(
        default=32.0, gt=0, allow_inf_nan=False, description="alpha / rank scales it"
    )
    targets: tuple[Projection, ...] = Field(
        default=get_args(Projection), min_length=1, description="the matrices, by PEFT's names"
    )

    @model_validator(mode="after")
    def _each_once(self) -> Lora:
        if len(set(self.targets)) < len(self.targets):
            raise ValueError("a target is named twice: leave one out")
        return self


class LearnerTable(Table):
    """`learner run`: policy optimisation on the engine's trajectories."""

    optimizer: Optimizer = Field(default_factory=Optimizer)
    advantage: Advantage = Field(default_factory=Advantage)
    credit: Credit = Field(default_factory=Credit)
    loss: Loss = Field(default_factory=Loss)
    kl: Kl = Field(default_factory=Kl)
    parallel: Parallel = Field(default_factory=Parallel)
    lora: Lora | None = Field(default=None, description="train adapters; absent, every weight")
    precision: Literal["float32", "bfloat16"] = "float32"
    updates: int = Field(default=1, ge=1, description="optimizer steps that share one batch")
    tokens_per_microbatch: int = Field(default=4096, ge=1)
    checkpoint_every: int = Field(default=10, ge=1, description="steps")
    keep_checkpoints: int = Field(default=2, ge=1)
    keep_policies: int = Field(default=3, ge=2, description="published folders that stay on disk")
    probe_rows: int = Field(
        default=8, ge=0, description="scored for the gap when training shows few; 0 = no probe"
    )
    lease_wait_s: float = Field(default=20.0, gt=0, description="one long poll for groups")
    patience_steps: int = Field(
        default=20,
        ge=0,
        description="steps in a row that teach nothing; 0 = without end",
    )
    engine_patience_s: float = Field(
        default=600.0, gt=0, description="how long the engine may be out of reach"
    )

    @model_validator(mode="after")
    def _whole_matrices(self) -> LearnerTable:
        _check_matrices(self.optimizer, self.parallel, self.lora)
        return self


class Heldout(Table):
    """Traces whose loss is measured and that are never trained on; none unless one is named."""

    data: Path | None = Field(default=None, description="a trajectories file of its own")
    fraction: float = Field(
        default=0.0, ge=0, lt=1, description="or this share of the tasks of sft.data"
    )
    every: int = Field(default=100, ge=1, description="steps")

    @model_validator(mode="after")
    def _one_source(self) -> Heldout:
        if self.data is not None and self.fraction:
            raise ValueError(
                "data and fraction both say what is held out: leave out the one that does not count"
            )
        return self


class SftTable(Table):
    """`learner sft`: imitation of the trainable tokens of a trajectories file."""

    data: Path = Field(description="what `engine render` wrote")
    model: Path | None = Field(default=None, description="folder to start from; policy.model")
    output: Path | None = Field(default=None, description="final folder; <run.folder>/sft/final")
    epochs: int | None = Field(
        default=None, ge=1, description="how often each trace is seen; 2 unless steps are given"
    )
    steps: int | None = Field(default=None, ge=1, description="or this many steps")
    batch_size: int = Field(default=32, ge=1, description="trajectories a step")
    max_length: int = Field(
        default=32768, ge=2, description="tokens; longer traces are dropped, never cut"
    )
    train_on: Literal["assistant", "all"] = Field(
        default="assistant", description="all: prompts and observations are targets too"
    )
    heldout: Heldout = Field(default_factory=Heldout)
    seed: int = Field(default=0, description="order of the data")
    optimizer: SftOptimizer = Field(default_factory=SftOptimizer)
    parallel: Parallel = Field(default_factory=Parallel)
    lora: Lora | None = Field(default=None, description="train adapters; absent, every weight")
    precision: Literal["float32", "bfloat16"] = "float32"
    tokens_per_microbatch: int = Field(default=4096, ge=1)
    checkpoint_every: int = Field(default=500, ge=1, description="steps")
    keep_checkpoints: int = Field(default=2, ge=1)

    def shown(self, count: int) -> int:
        """Traces of the whole run's batches, `count` different ones."""
        if self.steps is not None:
            return self.steps * self.batch_size
        return (self.epochs or EPOCHS) * count

    @model_validator(mode="after")
    def _one_length(self) -> SftTable:
        if self.steps is not None and self.epochs is not None:
            raise ValueError(
                f"steps = {self.steps} and epochs = {self.epochs}: give one of them, the other "
                "follows from it"
            )
        return self

    @model_validator(mode="after")
    def _whole_matrices(self) -> SftTable:
        _check_matrices(self.optimizer, self.parallel, self.lora)
        return self


def _check_matrices(optimizer: Optimizer, parallel: Parallel, lora: Lora | None) -> None:
    if lora is not None and parallel.tensor > 1:
        raise ValueError("lora adapts whole matrices: set parallel.tensor = 1")
    if lora is not None and optimizer.kind == "muon":
        raise ValueError("lora's two factors are no matrices for Muon: set optimizer.kind = 'adam'")
    if optimizer.kind == "muon" and parallel.tensor > 1:
        raise ValueError(
            "optimizer.kind = 'muon' orthogonalises whole matrices: set parallel.tensor = 1"
        )
