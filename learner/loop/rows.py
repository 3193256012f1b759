"""A step's groups on rank 0 to rows with advantages on all ranks."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from learner.credit.assign import assigned
from learner.loop.state import Run
from learner.loop.teachers import scored_by_teachers
from learner.loop.worth import why_worthless
from learner.ranks import parallel
from learner.training.batch import Row, check_vocabulary, rows_of
from learner.training.step import score
from toolwright.types import Group


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """The rows of one step."""

    rows: list[Row]
    worthless: str | None
    """Why the step can teach nothing; None if it can."""
    facts: dict[str, float]
    """Metrics of the advantages."""
    logprobs_s: float = 0.0
    """Time for log-probs of a teacher, and of the reference if they are part of the reward, in
    seconds."""


def prepare(run: Run, groups: Sequence[Group] | None) -> Batch:
    """The batch of these groups. groups: None on all ranks but the first.

    A masked trajectory has no row; its reward may count in its group's baseline. With KL in the
    reward, or a teacher, all ranks score the rows before rank 0 computes advantages.
    """
    rows = _rows(run, groups) if groups is not None else []
    kl = run.table.kl.coefficient if run.table.kl.place == "reward" else 0.0
    distill, budget = run.table.distillation, run.table.tokens_per_microbatch
    began = time.monotonic()
    if kl or distill is not None:
        rows = parallel.from_first(rows if groups is not None else None)
    if run.reference is not None and kl:
        rows, _ = score(run.reference, rows, budget, "reference")
    if distill is not None:
        rows = scored_by_teachers(run.teachers, rows, budget)
    seconds = time.monotonic() - began
    mine: Batch | None = None
    if groups is not None:
        rows, facts = assigned(
            rows, groups, run.table.advantage, run.table.credit, kl=kl, distill=distill
        )
        reason = why_worthless(groups, rows)
        mine = Batch(rows=rows, worthless=reason, facts=facts, logprobs_s=seconds)
    return parallel.from_first(mine)


def _rows(run: Run, groups: Sequence[Group]) -> list[Row]:
    places = {name: place for place, name in enumerate(run.recipe.shared.each_task)}
    rows = [
        replace(row, task=places[trajectory.task.name])
        for group in groups
        for trajectory in group.trajectories
        for row in rows_of(
            trajectory,
            temperature=run.recipe.shared.sampler.temperature,
            version=run.version,
            images=run.images,
        )
    ]
    check_vocabulary(rows, int(run.policy.shape["vocabulary"]))
    return rows
