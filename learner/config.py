"""The recipe's [learner] and [sft] tables.

Importable without torch, so that `engine check` can validate a recipe on a machine without it.
What engine and learner must agree on (steps, batch, staleness, correction) is in [run].
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from pydantic import Field, model_validator

from toolwright.recipe import Table

Aggregation = Literal[
    "token-mean", "seq-mean-token-mean", "seq-mean-token-sum", "seq-sum-token-sum-norm"
]

EPOCHS = 2
"""Of imitation where the recipe gives neither epochs nor steps (MTR, section 4.1)."""


Recompute = Literal["none", "selective", "full"]


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


class Kl(Table):
    """Distance to the policy that the run started from; 0 = no reference model at all."""

    coefficient: float = Field(default=0.0, ge=0)
    estimator: Literal["k1", "k2", "k3", "k3+", "abs"] = "k3"
    place: Literal["loss", "reward"] = Field(
        default="loss", description="a term of the loss, or k1 of each token off its reward"
    )


class Parallel(Table):
    """Ranks of one model copy; what is left over of the world size is data parallel."""

    tensor: int = Field(default=1, ge=1)
    pipeline: int = Field(default=1, ge=1, description="stages of the layers")
    sequence: bool = Field(
        default=False, description="norms' activations are split over the tensor-parallel ranks"
    )
    distributed_optimizer: bool = Field(
        default=False, description="optimizer state split over data ranks; TransformerEngine only"
    )

    @model_validator(mode="after")
    def _sequence_of_tensor(self) -> Parallel:
        if self.sequence and self.tensor == 1:
            raise ValueError(
                "parallel.sequence splits activations over the ranks of parallel.tensor: set that "
                "above 1, or parallel.sequence = false"
            )
        return self


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
    correction: Correction = Field(default_factory=Correction)
    kl: Kl = Field(default_factory=Kl)
    parallel: Parallel = Field(default_factory=Parallel)
    lora: Lora | None = Field(default=None, description="train adapters; absent, every weight")
    precision: Literal["float32", "bfloat16"] = "float32"
    recompute: Recompute = Field(
        default="none",
        description="activations that the backward pass computes again: attention's, or all",
    )
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
    def _whole_matrices(self) -> LearnerTable:
        _check_matrices(self)
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
    recompute: Recompute = Field(
        default="none",
        description="activations that the backward pass computes again: attention's, or all",
    )
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
        _check_matrices(self)
        return self


def _check_matrices(table: LearnerTable | SftTable) -> None:
    optimizer, parallel, lora = table.optimizer, table.parallel, table.lora
    if lora is not None and parallel.tensor > 1:
        raise ValueError("lora adapts whole matrices: set parallel.tensor = 1")
    if lora is not None and parallel.pipeline > 1:
        raise ValueError("lora's adapters are of all layers: set parallel.pipeline = 1")
    if lora is not None and table.recompute == "full":
        # Megatron's checkpoint of a layer has no gradient where its input has none.
        raise ValueError(
            "lora freezes what the first layer reads, and a layer that is computed again would "
            "give its adapters no gradient: set recompute = 'selective' or 'none'"
        )
    if lora is not None and optimizer.kind == "muon":
        raise ValueError("lora's two factors are no matrices for Muon: set optimizer.kind = 'adam'")
    if optimizer.kind == "muon" and parallel.tensor > 1:
        raise ValueError(
            "optimizer.kind = 'muon' orthogonalises whole matrices: set parallel.tensor = 1"
        )
    if optimizer.kind == "muon" and parallel.distributed_optimizer:
        raise ValueError(
            "optimizer.kind = 'muon' moves whole matrices: set parallel.distributed_optimizer = "
            "false"
        )
