"""One step from version v: lease its groups, train on their rows, publish v + 1.

Meanwhile the groups of the next step are leased, if they may be older than v + 1. Rank 0 talks to
the engine and makes the rows; everything else happens on all ranks.
"""

from __future__ import annotations

import time
from dataclasses import replace

from learner.config.objective import Kl
from learner.errors import CollapsedError, DivergedError, WorthlessError
from learner.intake.client import EngineClient
from learner.intake.images import load_images
from learner.intake.lease import Leased, lease_step
from learner.loop.handover import finish_save, finish_save_if_written, offer, save
from learner.loop.report import report_step
from learner.loop.rows import prepare
from learner.loop.state import Run
from learner.metrics import gap_of
from learner.ranks import parallel
from learner.stop import Interrupted
from learner.training.objective import PolicyObjective
from learner.training.update import MOST_BROKEN, improve

FEW_TOKENS = 128
"""Fewer tokens than this of the current version say little about sampler/learner agreement."""


def step(run: Run) -> bool:
    """One version: lease, train, publish, report, and at times a checkpoint.

    False if a stop cut the lease short: then nothing has happened.

    Raises DivergedError after MOST_BROKEN steps in a row without a finite gradient, and
    WorthlessError after learner.patience_steps that taught nothing. Raises CollapsedError if the
    policy has collapsed.
    """
    at = run.version
    leased = lease(run, run.client) if run.client is not None else None
    if not parallel.from_first(leased is not None if run.client is not None else None):
        return False
    if leased is not None:
        run.seconds["lease_s"] = leased.seconds
        lease_ahead(run)
        leased = with_images(run, leased)
    if run.recipe.shared.run.share_gpu:
        run.memory_released = True
        if run.client is not None:
            run.client.release_memory()  # the publish gives it back
        parallel.barrier()
    run.policy.states.come_back()
    batch = prepare(run, leased.groups if leased is not None else None)
    trained = time.monotonic()
    update = improve(
        run.policy,
        batch.rows,
        objective(run),
        reference=run.reference if run.table.kl.place == "loss" else None,
        updates=run.table.updates,
        budget=run.table.tokens_per_microbatch,
        step=at.step,
        steps=run.recipe.steps,
        drop_silent=run.table.advantage.zero_groups == "drop",
        tasks=run.tasks,
        measure_tasks=run.table.conflict_every > 0 and at.step % run.table.conflict_every == 0,
    )
    reason = batch.worthless or update.emptied
    run.worthless = run.worthless + 1 if reason else 0
    gap = gap_of(update.sums)
    if gap.get("gap_tokens", 0) < FEW_TOKENS:
        run.publisher.settle()  # the probe reads folders; the next publish waits for this one too
        groups = leased.groups if leased is not None else ()
        gap = run.probe(run.policy, groups, at, run.images) or gap
    update.logprobs_s += batch.logprobs_s
    run.seconds["train_s"] = time.monotonic() - trained + batch.logprobs_s
    run.broken = run.broken + 1 if update.broken and not update.moved else 0
    run.version = replace(at, step=at.step + 1)
    if run.table.offload:
        run.policy.states.leave()  # before the samplers take their memory again
    if run.broken < MOST_BROKEN:
        offer(run, moved=update.moved > 0)
    collapsed: str | None = None
    if leased is not None:
        # Before the checkpoint: every step in a checkpoint has its line, even after a crash.
        figures = report_step(run, at, leased, update, {**batch.facts, **gap}, reason)
        found = run.collapse.add(run.version.step, figures)
        collapsed = found.sentence if found is not None and run.table.patience_steps else None
    collapsed = parallel.from_first(collapsed)
    if run.broken >= MOST_BROKEN:
        raise DivergedError(
            f"steps {run.version.step - MOST_BROKEN + 1} to {run.version.step} had no finite "
            f"gradient, the last for {update.broken} of {run.table.updates} updates; the weights "
            f"are those of {run.published_folder}. Check nonfinite_rows in learner.jsonl and the "
            "learning rates; the same command goes on from the newest checkpoint"
        )
    if reason:
        run.report.say(f"step {run.version.step} taught nothing: {reason}")
    last = run.version.step == run.recipe.steps
    out_of_patience = 0 < run.table.patience_steps <= run.worthless
    if last or out_of_patience or collapsed or run.version.step % run.table.checkpoint_every == 0:
        save(run)
    else:
        finish_save_if_written(run)
    if last or out_of_patience or collapsed:
        finish_save(run)
    if out_of_patience and not last:
        raise WorthlessError(
            f"{run.worthless} steps in a row taught nothing, up to step {run.version.step}: "
            f"{reason}. Fix that and start the same command again, or set "
            "learner.patience_steps higher (0 for no limit)"
        )
    if collapsed and not last:
        raise CollapsedError(
            f"{collapsed}. Start over with a lower learner.optimizer.lr or a higher "
            "learner.kl.coefficient, or set learner.patience_steps = 0 to continue"
        )
    return True


def lease(run: Run, client: EngineClient) -> Leased | None:
    """The step's groups. None after a stop: the ledger is unchanged, and the engine offers the
    groups again."""
    before = run.ledger.copy()
    try:
        return lease_step(
            run.prefetch or client,
            run.ledger,
            version=run.version,
            count=run.recipe.shared.run.groups_per_step,
            wait=run.table.lease_wait_s,
            say=run.report.say,
            heartbeat=parallel.still_waiting,
            why_none=lambda: why_none_will_come(run),
            waiting=run.stop.interruptible,
        )
    except Interrupted:
        run.ledger = before
        return None


def with_images(run: Run, leased: Leased) -> Leased:
    """The groups, with trajectories masked whose images cannot be read. Fills `run.images`."""
    if run.policy.image_embedding is None or run.client is None:
        return leased
    seen = load_images(leased.groups, run.client.blob, run.policy.image_embedding.pixels.whole)
    run.images = dict(seen.images)
    if seen.masked:
        run.report.say(
            f"{len(seen.masked)} trajectories were masked: their policy was shown an image that "
            f"this learner cannot read ({seen.why})"
        )
    return replace(leased, groups=seen.groups, unreadable=seen.masked)


def lease_ahead(run: Run) -> None:
    """Begins the lease of the next step's groups, at the next step's version."""
    following = replace(run.version, step=run.version.step + 1)
    if run.prefetch is not None and following.step < run.recipe.steps:
        run.prefetch.begin(
            after=run.ledger.mark,
            count=run.recipe.shared.run.groups_per_step,
            version=following,
            wait=run.table.lease_wait_s,
        )


def why_none_will_come(run: Run) -> str:
    """The engine's reason if dynamic sampling has given up; empty if it has not."""
    return run.client.state().fruitless if run.client is not None else ""


def objective(run: Run) -> PolicyObjective:
    """The recipe's loss. KL in the reward is not a term of it."""
    return PolicyObjective(
        loss=run.table.loss,
        kl=run.table.kl if run.table.kl.place == "loss" else Kl(),
        correction=run.recipe.shared.run.correction,
        bounds=run.table.correction,
        tasks=tuple(run.recipe.shared.tasks),
    )
