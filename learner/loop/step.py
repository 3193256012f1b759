"""One step, from version v: lease its groups at v, train on their rows, hand v + 1 over.

Rank 0 talks to the engine and hands the rows to the others; everything else happens on all ranks.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

from learner.errors import DivergedError, WorthlessError
from learner.intake.lease import Leased, lease_step
from learner.loop.handover import offer, save
from learner.loop.state import Run
from learner.loop.tell import tell
from learner.loop.worth import why_worthless
from learner.maths.advantages import advantages_of
from learner.metrics import gap_of
from learner.model import parallel
from learner.training.batch import Row, check_vocabulary, rows_of
from learner.training.objective import PolicyObjective
from learner.training.update import MOST_BROKEN, improve
from toolwright.types import Group

FEW_TOKENS = 128
"""Fewer tokens than this of the current version say little about sampler/learner agreement."""


def step(run: Run) -> None:
    """One version: lease, train, publish, tell, and at times a checkpoint.

    DivergedError after MOST_BROKEN steps in a row without a finite gradient, WorthlessError after
    learner.patience_steps that taught nothing.
    """
    at = run.version
    leased: Leased | None = None
    if run.client is not None:
        leased = lease_step(
            run.client,
            run.ledger,
            version=at,
            count=run.recipe.shared.run.groups_per_step,
            wait=run.table.lease_wait_s,
            say=run.report.say,
            beat=parallel.still_waiting,
        )
        run.seconds["lease_s"] = leased.seconds
    mine: tuple[list[Row], str | None] | None = None
    if leased is not None:
        prepared = prepare(run, leased.groups)
        mine = prepared, why_worthless(leased.groups, prepared)
    rows, reason = parallel.from_first(mine)
    run.worthless = run.worthless + 1 if reason else 0
    trained = time.monotonic()
    update = improve(
        run.policy,
        rows,
        objective(run),
        reference=run.reference,
        updates=run.table.updates,
        budget=run.table.tokens_per_microbatch,
        step=at.step,
        steps=run.recipe.shared.run.steps,
        drop_silent=run.table.advantage.zero_groups == "drop",
    )
    gap = gap_of(update.sums)
    if gap.get("gap_tokens", 0) < FEW_TOKENS:
        gap = run.probe(leased.groups if leased is not None else (), at) or gap
    run.seconds["train_s"] = time.monotonic() - trained
    run.broken = run.broken + 1 if update.broken and not update.moved else 0
    run.version = replace(at, step=at.step + 1)
    if run.broken < MOST_BROKEN:
        offer(run, moved=update.moved > 0)
    if leased is not None:
        # Before the checkpoint: a step that a checkpoint holds has its line, whatever dies.
        tell(run, at, leased, update, gap)
    if run.broken >= MOST_BROKEN:
        raise DivergedError(
            f"steps {run.version.step - MOST_BROKEN + 1} to {run.version.step} had no finite "
            f"gradient, the last for {update.broken} of {run.table.updates} updates; the weights "
            f"are those of {run.offered}. Look at nonfinite_rows in learner.jsonl, and at the "
            "rates; the same command goes on from the newest checkpoint"
        )
    if reason:
        run.report.say(f"step {run.version.step} taught nothing: {reason}")
    last = run.version.step == run.recipe.shared.run.steps
    out_of_patience = 0 < run.table.patience_steps <= run.worthless
    if last or out_of_patience or run.version.step % run.table.checkpoint_every == 0:
        save(run)
    if out_of_patience and not last:
        raise WorthlessError(
            f"{run.worthless} steps in a row taught nothing, up to step {run.version.step}: "
            f"{reason}. Mend that and start the same command again, or set "
            "learner.patience_steps higher (0 is without end)"
        )


def prepare(run: Run, groups: Sequence[Group]) -> list[Row]:
    """Rows with their advantages. A masked trajectory has no row; its reward may count in its
    group's baseline."""
    values = advantages_of(groups, run.table.advantage)
    silent = {g.id for g in groups if not any(values[t.id] for t in g.trajectories)}
    rows = [
        replace(row, advantage=values[trajectory.id], silent=group.id in silent)
        for group in groups
        for trajectory in group.trajectories
        for row in rows_of(
            trajectory,
            temperature=run.recipe.shared.sampler.temperature,
            version=run.version,
        )
    ]
    check_vocabulary(rows, int(run.policy.shape["vocabulary"]))
    return rows


def objective(run: Run) -> PolicyObjective:
    """The loss that the recipe asks for."""
    return PolicyObjective(
        loss=run.table.loss, kl=run.table.kl, correction=run.recipe.shared.run.correction
    )
