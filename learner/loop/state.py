"""What the loop carries from step to step, and what a checkpoint of it must agree with."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from learner.config.tables import LearnerTable
from learner.intake.ahead import Ahead
from learner.intake.client import EngineClient
from learner.intake.ledger import Ledger
from learner.loop.gauges import LoopGauges
from learner.loop.traces import StepTraces
from learner.maths.tasks import Tasks
from learner.metrics import MetricsLog
from learner.model.policy import Model, Policy
from learner.progress import Reporter
from learner.saving.broadcast import ByGroup
from learner.saving.checkpoint import Checkpoints
from learner.stop import Stop
from learner.training.probe import Probe
from learner.vision.shown import Image
from toolwright.credit.collapse import CollapseWatch
from toolwright.recipe import Recipe
from toolwright.types import WeightVersion


@dataclass(slots=True, kw_only=True)
class Run:
    """One run. `client`, `ahead`, `log`, `gauges` and `traces` live on rank 0 only.

    ahead: leases the next batch while this one trains; None where nothing may be leased ahead.
    gauges: what Prometheus is shown; traces: what a collector is told; None where they are not
    wanted.
    by_group: publishes from memory to memory; None where weights go by disk.
    offered: folder of the newest published weights. images: by hash, what the policy was shown in
    this step's groups; None where it reads text alone. saved: step of the newest checkpoint.
    collapse: is given every step's figures on rank 0.
    broken: steps in a row without a finite gradient. worthless: steps in a row that taught nothing.
    marked: when the last metrics line was written; seconds: what was spent since, for the next,
    and what else a publish says of itself.
    """

    recipe: Recipe
    table: LearnerTable
    policy: Policy
    reference: Model | None
    version: WeightVersion
    ledger: Ledger
    checkpoints: Checkpoints
    probe: Probe
    report: Reporter
    stop: Stop
    client: EngineClient | None = None
    ahead: Ahead | None = None
    by_group: ByGroup | None = None
    log: MetricsLog | None = None
    gauges: LoopGauges | None = None
    traces: StepTraces | None = None
    offered: Path
    images: dict[str, Image] | None = None
    saved: int = -1
    broken: int = 0
    worthless: int = 0
    collapse: CollapseWatch = field(default_factory=CollapseWatch)
    marked: float = field(default_factory=time.monotonic)
    seconds: dict[str, float] = field(default_factory=dict)

    @property
    def tasks(self) -> Tasks | None:
        """Of a recipe that has several."""
        mixed = self.recipe.shared.tasks
        if not mixed:
            return None
        return Tasks(
            names=tuple(mixed),
            weights=tuple(task.weight for task in mixed.values()),
            apart=self.table.loss.per_task,
        )

    @property
    def policies(self) -> Path:
        """Where published folders lie."""
        return self.recipe.run_folder / "policy"


def identity(recipe: Recipe, table: LearnerTable, policy: Policy) -> dict[str, Any]:
    """What a checkpoint and a recipe must agree on."""
    return {
        "kind": "run",
        "model": policy.shape,
        "optimizer": table.optimizer.kind,
        "precision": table.precision,
        "seed": recipe.shared.run.seed,
    }
