"""The recipe's [learner] and [sft] tables.

Importable without torch, so that `engine check` can validate a recipe on a machine without it.
What engine and learner must agree on (steps, batch, staleness, correction) is in [run].
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field, model_validator

from toolwright.recipe import Table

Aggregation = Literal[
    "token-mean", "seq-mean-token-mean", "seq-mean-token-sum", "seq-sum-token-sum-norm"
]


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
    decay: Literal["constant", "linear", "cosine"] = "constant"
    min_fraction: float = Field(default=0.0, ge=0, le=1, description="of the peak, at the end")
    clip: float = Field(default=1.0, gt=0, description="largest global gradient norm")


class Advantage(Table):
    """Group-relative advantages (spec 6.1)."""

    std: Literal["population", "sample", "none"] = "sample"
    eps: float = Field(default=1e-6, ge=0)
    singleton: Literal["zero", "raw"] = "zero"
    zero_groups: Literal["count", "drop"] = Field(
        default="count",
        description="groups without a signal: tokens count in the mean, or leave the batch",
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


class Parallel(Table):
    """Ranks of one model copy; what is left over of the world size is data parallel."""

    tensor: int = Field(default=1, ge=1)
    pipeline: Literal[1] = 1


class LearnerTable(Table):
    """`learner run`: policy optimisation on the engine's trajectories."""

    optimizer: Optimizer = Field(default_factory=Optimizer)
    advantage: Advantage = Field(default_factory=Advantage)
    loss: Loss = Field(default_factory=Loss)
    kl: Kl = Field(default_factory=Kl)
    parallel: Parallel = Field(default_factory=Parallel)
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
    prefetch: bool = Field(
        default=True,
        description="lease the next batch while this one trains, where run.max_staleness > 0",
    )
    patience_steps: int = Field(
        default=20,
        ge=0,
        description="steps in a row that teach nothing; 0 = without end",
    )
    engine_patience_s: float = Field(
        default=600.0, gt=0, description="how long the engine may be out of reach"
    )

    @model_validator(mode="after")
    def _muon_alone(self) -> LearnerTable:
        _check_muon(self.optimizer, self.parallel)
        return self


class SftTable(Table):
    """`learner sft`: imitation of the trainable tokens of a trajectories file."""

    data: Path = Field(description="what `engine render` wrote")
    model: Path | None = Field(default=None, description="folder to start from; policy.model")
    output: Path | None = Field(default=None, description="final folder; <run.folder>/sft/final")
    steps: int = Field(ge=1)
    batch_size: int = Field(default=32, ge=1, description="trajectories a step")
    seed: int = Field(default=0, description="order of the data")
    optimizer: Optimizer = Field(default_factory=lambda: Optimizer(lr=1e-5, beta2=0.98))
    parallel: Parallel = Field(default_factory=Parallel)
    precision: Literal["float32", "bfloat16"] = "float32"
    tokens_per_microbatch: int = Field(default=4096, ge=1)
    checkpoint_every: int = Field(default=500, ge=1, description="steps")
    keep_checkpoints: int = Field(default=2, ge=1)

    @model_validator(mode="after")
    def _muon_alone(self) -> SftTable:
        _check_muon(self.optimizer, self.parallel)
        return self


def _check_muon(optimizer: Optimizer, parallel: Parallel) -> None:
    if optimizer.kind == "muon" and parallel.tensor > 1:
        raise ValueError(
            "optimizer.kind = 'muon' orthogonalises whole matrices: set parallel.tensor = 1"
        )
