"""State of the loop between steps, and the settings that a checkpoint must agree with."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from learner.config.tables import LearnerTable
from learner.intake.client import EngineClient
from learner.intake.ledger import Ledger
from learner.intake.prefetch import Prefetch
from learner.loop.gauges import LoopGauges
from learner.loop.teachers import Teacher
from learner.loop.traces import StepTraces
from learner.maths.tasks import Tasks
from learner.metrics import MetricsLog
from learner.model.policy import Model, Policy
from learner.progress import Reporter
from learner.saving.broadcast import BroadcastPublisher
from learner.saving.checkpoint import Checkpoints
from learner.saving.publish import FolderPublisher
from learner.stop import Stop
from learner.training.probe import Probe
from learner.vision.placed import Image
from toolwright.credit.collapse import CollapseWatch
from toolwright.recipe import Recipe
from toolwright.types import WeightVersion


@dataclass(frozen=True, slots=True, kw_only=True)
class Saving:
    """A checkpoint in progress."""

    step: int
    mark: int
    """Its groups are acknowledged up to this sequence number; read on rank 0."""
    began: float
    """On the monotonic clock."""


@dataclass(slots=True, kw_only=True)
class Run:
    """One run. `client`, `prefetch`, `log`, `gauges` and `traces` exist on rank 0 only."""

    recipe: Recipe
    table: LearnerTable
    policy: Policy
    reference: Model | None
    teachers: tuple[Teacher, ...] = ()
    """The teacher of each task; empty without distillation."""
    version: WeightVersion
    ledger: Ledger
    checkpoints: Checkpoints
    probe: Probe
    report: Reporter
    stop: Stop
    published_folder: Path
    """Folder of the newest published weights."""
    client: EngineClient | None = None
    prefetch: Prefetch | None = None
    """Leases the next batch while this one trains; None if nothing may be leased early."""
    broadcast: BroadcastPublisher | None = None
    """Publishes from memory to memory; None if weights travel by folder."""
    log: MetricsLog | None = None
    gauges: LoopGauges | None = None
    """Metrics for Prometheus; None if the recipe sets no port."""
    traces: StepTraces | None = None
    """Spans for a collector; None if the run has no collector."""
    images: dict[str, Image] | None = None
    """Images of this step's groups by hash; None if the policy reads text alone."""
    saved: int = -1
    """Step of the newest complete checkpoint."""
    saving: Saving | None = None
    """The checkpoint in progress; the same on all ranks."""
    memory_released: bool = False
    """Whether the samplers have released the memory of a shared GPU to this step."""
    broken: int = 0
    """Steps in a row without a finite gradient."""
    worthless: int = 0
    """Steps in a row that taught nothing."""
    collapse: CollapseWatch = field(default_factory=CollapseWatch)
    """Gets every step's figures, on rank 0."""
    marked: float = field(default_factory=time.monotonic)
    """Time of the last metrics line, on the monotonic clock."""
    seconds: dict[str, float] = field(default_factory=dict)
    """Seconds of phases since the last metrics line, and figures of a publish, for the next
    line."""

    @property
    def tasks(self) -> Tasks | None:
        """The recipe's tasks; None if it has one."""
        mixed = self.recipe.shared.tasks
        if not mixed:
            return None
        return Tasks(
            names=tuple(mixed),
            weights=tuple(task.weight for task in mixed.values()),
            per_task=self.table.loss.per_task,
        )

    @property
    def by_folder(self) -> FolderPublisher:
        """Publishes by folders, which every lineage begins with."""
        return FolderPublisher(
            self.client,
            self.policies,
            kept=self.table.keep_policies,
            adapters=self.recipe.shared.run.publish_adapters,
        )

    @property
    def publisher(self) -> FolderPublisher | BroadcastPublisher:
        """Publishes in the recipe's way."""
        return self.broadcast or self.by_folder

    @property
    def policies(self) -> Path:
        """Folder of the published policies."""
        return self.recipe.run_folder / "policy"


def identity(recipe: Recipe, table: LearnerTable, policy: Policy) -> dict[str, Any]:
    """Settings that a checkpoint and a recipe must agree on."""
    return {
        "kind": "run",
        "model": policy.shape,
        "optimizer": table.optimizer.kind,
        "precision": table.precision,
        "seed": recipe.shared.run.seed,
    }
