"""The recipe's [learner] and [sft] tables.

Importable without torch, so that `engine check` can validate a recipe on a machine without it.
Settings that engine and learner share (steps, batch, staleness, correction) are in [run].
"""

from __future__ import annotations

from itertools import starmap
from pathlib import Path
from typing import ClassVar, Literal, Self

from pydantic import Field, model_validator

from learner.config import reads
from learner.config.objective import Advantage, Correction, Credit, Distill, Kl, Loss
from learner.config.training import TrainingTable
from learner.config.weights import Publish, SftOptimizer, Vision
from toolwright.credit.estimators import ESTIMATORS
from toolwright.credit.losses import AGGREGATIONS
from toolwright.recipe import Shared, Table, task_key
from toolwright.recipe.models.table import Either, ReadIf

EPOCHS = 2
"""Epochs of imitation if the recipe gives neither epochs nor steps (MTR, section 4.1)."""


class LearnerTable(TrainingTable):
    """Settings of `learner run`, which trains on the engine's trajectories."""

    advantage: Advantage = Field(default_factory=Advantage)
    """From rewards to advantages."""
    credit: Credit = Field(default_factory=Credit)
    """Credit of turns."""
    loss: Loss = Field(default_factory=Loss)
    """The policy loss."""
    correction: Correction = Field(default_factory=Correction)
    """Bounds of `run.correction`."""
    kl: Kl = Field(default_factory=Kl)
    """KL term."""
    distill: Distill = Field(default_factory=Distill)
    """Teachers."""
    publish: Publish = Field(default_factory=Publish)
    """The way of new weights to the samplers."""
    vision: Vision = "frozen"
    """Vision tower of a policy that reads images."""
    updates: int = Field(default=1, ge=1)
    """Optimizer steps that share one batch, each with its own part of it."""
    offload: bool = False
    """Gradients, moments and float32 masters lie in host memory between steps, for `run.share_gpu`.
    Not run on a GPU yet."""
    keep_policies: int = Field(default=3, ge=2)
    """Published folders that stay on disk."""
    probe_rows: int = Field(default=8, ge=0)
    """Rows that are scored for the gap if training shows few tokens of the current weights; 0 is
    off."""
    conflict_every: int = Field(default=0, ge=0)
    """With [tasks.NAME]: steps between measurements of the cosines of the tasks' gradients; 0 is
    never."""
    lease_wait_s: float = Field(default=20.0, gt=0)
    """Time of one long poll for groups, in seconds."""
    prefetch: bool = True
    """Lease the next batch while this one trains, if `run.max_staleness` is above 0."""
    patience_steps: int = Field(default=20, ge=0)
    """Steps in a row that teach nothing, after which the run ends with exit code 4; 0 is no limit.
    """
    engine_patience_s: float = Field(default=600.0, gt=0)
    """Longest time that the engine may be unreachable, in seconds."""
    metrics_port: int = Field(default=0, ge=0, le=65_535)
    """Port of Prometheus metrics on loopback; 0 is off."""

    rules: ClassVar = (
        *starmap(ReadIf, reads.LEARNER.items()),
        *(ReadIf(key, reads.REWARDED) for key in reads.OF_REWARDS),
    )
    synonyms: ClassVar = "learner"

    @property
    def frozen_models(self) -> int:
        """The reference, which adapters do without, and each folder of a teacher."""
        reference = self.kl.coefficient > 0 and self.lora is None
        return reference + (len(self.distillation.folders) if self.distillation else 0)

    def longest_row(self, shared: Shared) -> tuple[int, str]:
        return longest_response(shared)

    @property
    def distillation(self) -> Distill | None:
        """The teachers that the run reads; None without distillation."""
        return self.distill if self.loss.kind == "distill" else None

    @property
    def reads_rewards(self) -> bool:
        """Whether advantages of the reward count."""
        return self.distillation is None or self.distill.reward

    @model_validator(mode="after")
    def _tower_has_gradients(self) -> Self:
        if self.parallel.overlap and self.vision == "trained":
            raise ValueError(
                "parallel.overlap needs a gradient of every weight in every micro-batch, and the "
                "vision tower has none without an image: set parallel.overlap = false"
            )
        return self

    @model_validator(mode="after")
    def _distillation_has_a_teacher(self) -> Self:
        teachers = self.distillation
        if teachers is not None and teachers.teacher is None and not teachers.teachers:
            raise ValueError(
                "loss.kind = 'distill' needs a teacher: set learner.distill.teacher to the folder "
                "of a model with the policy's tokenizer, or to the URL of its server"
            )
        if self.kl.coefficient and self.kl.place == "reward" and not self.reads_rewards:
            raise ValueError(
                "kl.place = 'reward' changes a reward that loss.kind = 'distill' does not read: "
                "set learner.kl.place = 'loss', or learner.distill.reward = true"
            )
        return self

    def in_force(self, shared: Shared) -> str:
        teachers, rewards = self.distillation, self.reads_rewards
        parts = (
            self.loss.summary,
            *([teachers.summary] if teachers is not None else []),
            *self._of_tasks(shared),
            *([self.advantage.summary] if rewards else []),
            self.correction.summary(shared.run.correction),
            *([self.credit.summary] if rewards else []),
            self.kl.summary,
            self._weights,
            f"staleness {shared.run.max_staleness}",
            f"{'adapters' if shared.run.publish_adapters else 'weights'} by {self.publish.way}",
        )
        return "; ".join(parts)

    def _of_tasks(self, shared: Shared) -> list[str]:
        if not shared.tasks:
            return []
        weights = ", ".join(f"{name} {task.weight:g}" for name, task in shared.tasks.items())
        return [
            f"means {'within each task' if self.loss.per_task else 'over all tasks'}, {weights}"
        ]

    def conflict(self, shared: Shared) -> str:
        if not shared.run.publish_adapters:
            return ""
        if self.lora is None:
            return (
                "run.publish_adapters = true without [learner.lora]: there are no adapters; write "
                "[learner.lora], or set run.publish_adapters = false"
            )
        if self.publish.way != "folder":
            return (
                f"run.publish_adapters = true with learner.publish.way = {self.publish.way!r}: "
                "adapters come by a folder; set learner.publish.way = 'folder'"
            )
        return ""

    def doubts(self, shared: Shared) -> list[str]:
        run, advantage = shared.run, self.advantage
        lines = []
        lone = ESTIMATORS[advantage.estimator].reads
        alone = run.group_size == 1 and self.reads_rewards
        if alone and "singleton" in lone and advantage.singleton == "zero":
            lines.append(
                "run.group_size = 1 leaves nothing to compare a rollout with: every advantage "
                "is 0 (learner.advantage.singleton = 'raw' takes the reward itself)"
            )
        if self.updates > run.batch:
            lines.append(
                f"learner.updates = {self.updates} deals a batch of {run.batch} rollouts "
                "into more parts than it has: some updates get none"
            )
        teachers = self.distillation
        if teachers is not None and (fault := teachers.fault(list(shared.each_task))):
            lines.append(fault)
        if self.credit.turns == "none" and not self.credit.count_in_reward:
            lines += [
                f"{task_key(name)}.tool_rewards = true teaches nothing: set learner.credit.turns, "
                "for example to 'position', or learner.credit.count_in_reward = true"
                for name, task in shared.each_task.items()
                if task.tool_rewards
            ]
        if teachers is not None and teachers.urls and shared.sampler.temperature != 1:
            lines.append(
                f"the server of a teacher scores at temperature 1, and sampler.temperature is "
                f"{shared.sampler.temperature:g}: set it to 1.0, or name the teacher's folder"
            )
        unreachable = self.publish.beyond(shared.sampler.endpoints)
        if unreachable is not None:
            lines.append(unreachable)
        summed = "norm" in AGGREGATIONS[self.loss.aggregation].reads
        if summed and "norm" not in self.loss.model_fields_set:
            longest, key = longest_response(shared)
            rows = run.batch // self.updates
            lines.append(
                f"learner.loss.aggregation = {self.loss.aggregation!r} divides the sum over all "
                "tokens by learner.loss.norm, which is left at 1: gradients grow with the batch. "
                f"Dr. GRPO's constant is the longest response: set learner.loss.norm = "
                f"{longest * max(1, rows)}, {key} ({longest}) times the "
                f"{max(1, rows)} trajectories of an update"
            )
        return lines


def longest_response(shared: Shared) -> tuple[int, str]:
    """Longest response over all tasks, and the key that sets it."""
    limits = {name: task.limits.longest for name, task in shared.each_task.items()}
    name = max(limits, key=lambda one: limits[one][1])
    key, longest = limits[name]
    return longest, f"{task_key(name)}.limits.{key}"


class Heldout(Table):
    """Held-out traces. Their loss is measured, and the weights with the lowest one are in
    `sft/best` of the run folder."""

    data: Path | None = None
    """File of trajectories that are never trained on."""
    fraction: float = Field(default=0.0, ge=0, lt=1)
    """Share of the tasks of `sft.data` that is held out instead, with all their traces."""
    every: int = Field(default=100, ge=1)
    """Steps between measurements, in addition to before the first and after the last."""

    rules: ClassVar = (Either("data", "fraction"),)

    @model_validator(mode="after")
    def _one_source(self) -> Heldout:
        if self.data is not None and self.fraction:
            raise ValueError(
                "data and fraction both name the held-out traces: leave one of them out"
            )
        return self


class SftTable(TrainingTable):
    """Settings of `learner sft`, which imitates the trainable tokens of a trajectories file. Its
    loss is the mean negative log-likelihood over all targets of a batch."""

    data: Path
    """File of `engine render` or `engine sample`, or a folder of `*.trajectories`."""
    model: Path | None = None
    """Folder to start from. None: `policy.model`."""
    output: Path | None = None
    """Folder of the trained policy. None: `sft/final` in the run folder."""
    epochs: int | None = Field(default=None, ge=1)
    """Passes over the traces; 2 if neither `epochs` nor `steps` is given."""
    steps: int | None = Field(default=None, ge=1)
    """Full batches, in place of `epochs`."""
    batch_size: int = Field(default=32, ge=1)
    """Trajectories in one step."""
    max_length: int = Field(default=32768, ge=2)
    """Longest trace, in tokens. A longer one is dropped and counted."""
    train_on: Literal["assistant", "all"] = "assistant"
    """Targets: tokens that the file marks as trainable, or prompts and observations too (`"all"`).
    """
    heldout: Heldout = Field(default_factory=Heldout)
    """Held-out traces."""
    seed: int = 0
    """Seed of the order of the data and of the held-out traces."""
    optimizer: SftOptimizer = Field(default_factory=SftOptimizer)
    """The optimizer."""
    checkpoint_every: int = Field(default=500, ge=1)
    """Steps between checkpoints."""

    rules: ClassVar = (Either("steps", "epochs"), *starmap(ReadIf, reads.SFT.items()))
    synonyms: ClassVar = "sft"

    def longest_row(self, shared: Shared) -> tuple[int, str]:
        return self.max_length, "sft.max_length"

    def in_force(self, shared: Shared) -> str:
        epochs = self.epochs or EPOCHS
        seen = "once" if epochs == 1 else f"{epochs} times"
        length = f"{self.steps} steps" if self.steps is not None else f"each trace {seen}"
        return f"{length}, {self.batch_size} traces a step; {self._weights}"

    def shown(self, count: int) -> int:
        """Number of traces in all batches of the run, with `count` different traces."""
        if self.steps is not None:
            return self.steps * self.batch_size
        return (self.epochs or EPOCHS) * count

    @model_validator(mode="after")
    def _one_length(self) -> SftTable:
        if self.steps is not None and self.epochs is not None:
            raise ValueError(
                f"steps = {self.steps} and epochs = {self.epochs}: give one of them; the other "
                "follows from it"
            )
        return self
