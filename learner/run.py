"""The loop: lease, train, publish; now and then checkpoint and acknowledge.

A step, from version v: lease the step's groups at v, turn them into rows, update, publish v + 1.
Weights that die with the process between publish and checkpoint belong to an abandoned lineage:
the resumed run opens a new one, published before anything is leased (see `start`).

Rank 0 talks to the engine and hands the rows to the others; everything else happens on all ranks.
"""

from __future__ import annotations

import contextlib
import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

from learner.config import LearnerTable
from learner.errors import DivergedError, WorthlessError
from learner.intake.client import PUBLISH_S, EngineClient, lease_deadline
from learner.intake.lease import Leased, lease_step
from learner.intake.ledger import Ledger
from learner.maths.advantages import advantages_of
from learner.metrics import MetricsLog, gap_of, training_stats, trajectory_stats
from learner.model import parallel
from learner.model.policy import Model, Policy, load_frozen, load_policy
from learner.progress import Reporter
from learner.saving.checkpoint import Checkpoints, check_fits, read_state
from learner.saving.publish import advance, publish, sweep
from learner.training.batch import Row, check_vocabulary, rows_of
from learner.training.memory import free_bytes, too_long
from learner.training.objective import PolicyObjective
from learner.training.probe import Probe
from learner.training.update import MOST_BROKEN, Update, improve
from learner.worth import why_worthless
from toolwright.beginning import first_policy
from toolwright.recipe import Recipe
from toolwright.types import Group, WeightVersion

FEW_TOKENS = 128
"""Fewer tokens than this of the current version say little about sampler/learner agreement."""


@dataclass(slots=True, kw_only=True)
class Run:
    """What the loop carries from step to step. `client` and `log` live on rank 0 only.

    offered: folder of the newest published weights. saved: step of the newest checkpoint. broken:
    steps in a row without a finite gradient. worthless: steps in a row that taught nothing.
    marked: when the last metrics line was written; seconds: what was spent since, for the next.
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
    client: EngineClient | None = None
    log: MetricsLog | None = None
    offered: Path
    saved: int = -1
    broken: int = 0
    worthless: int = 0
    marked: float = field(default_factory=time.monotonic)
    seconds: dict[str, float] = field(default_factory=dict)

    @property
    def policies(self) -> Path:
        """Where published folders lie."""
        return self.recipe.run_folder / "policy"


def run(recipe: Recipe) -> Path:
    """Trains until run.steps and returns the final Hugging Face folder."""
    table = recipe.table("learner", LearnerTable)
    shared = recipe.shared
    final = recipe.run_folder / "final"
    with parallel.ranks(
        tensor=table.parallel.tensor,
        seed=shared.run.seed,
        wait=longest_alone(table, shared.run.groups_per_step),
    ):
        first = parallel.is_first()
        if first:
            recipe.write_resolved("learner", table)
        source = first_policy(recipe)
        policy = load_policy(source, table.optimizer, table.precision)
        reference = load_frozen(source, table.precision) if table.kl.coefficient > 0 else None
        checkpoints = Checkpoints(recipe.run_folder / "checkpoints", table.keep_checkpoints)
        version, ledger, resumed = restore(recipe, table, policy, checkpoints)
        with contextlib.ExitStack() as stack:
            report = stack.enter_context(
                Reporter("step", shared.run.steps, version.step, quiet=not first)
            )
            state = Run(
                recipe=recipe,
                table=table,
                policy=policy,
                reference=reference,
                version=version,
                ledger=ledger,
                checkpoints=checkpoints,
                probe=Probe(
                    precision=table.precision,
                    rows=table.probe_rows,
                    budget=table.tokens_per_microbatch,
                    temperature=shared.sampler.temperature,
                    source=source,
                    policies=recipe.run_folder / "policy",
                ),
                report=report,
                offered=source,
                saved=version.step if resumed else -1,
            )
            if first:
                state.client = stack.enter_context(
                    EngineClient(
                        shared.run.engine, patience=table.engine_patience_s, say=report.say
                    )
                )
                state.log = stack.enter_context(MetricsLog(recipe.run_folder, "learner"))
            warn_of_long_rows(state)
            start(state, resumed=resumed)
            state.marked = time.monotonic()
            while state.version.step < shared.run.steps:
                step(state)
            if state.saved != state.version.step:
                save(state)
            policy.save(final)
    return final


def longest_alone(table: LearnerTable, groups: int) -> timedelta:
    """How long rank 0 may keep the others waiting: one call to the engine, and its retries."""
    seconds = max(PUBLISH_S, lease_deadline(table.lease_wait_s, groups)) + table.engine_patience_s
    return parallel.RANKS_WAIT + timedelta(seconds=seconds)


def restore(
    recipe: Recipe, table: LearnerTable, policy: Policy, checkpoints: Checkpoints
) -> tuple[WeightVersion, Ledger, bool]:
    """(version, ledger, whether there was a checkpoint). CheckpointError when it does not fit."""
    if parallel.is_first():
        checkpoints.sweep()
    path = checkpoints.latest()
    if path is None:
        fresh = WeightVersion(lineage=parallel.from_first(secrets.token_hex(4)), step=0)
        return fresh, Ledger(), False
    state, ledger = read_state(path)
    check_fits(state, identity(recipe, table, policy), path)
    checkpoints.load(policy, path)
    return WeightVersion(lineage=state["lineage"], step=int(state["step"])), ledger, True


def identity(recipe: Recipe, table: LearnerTable, policy: Policy) -> dict[str, Any]:
    """What a checkpoint and a recipe must agree on."""
    return {
        "kind": "run",
        "model": policy.shape,
        "optimizer": table.optimizer.kind,
        "precision": table.precision,
        "seed": recipe.shared.run.seed,
    }


def start(run: Run, *, resumed: bool) -> None:
    """Makes engine and learner agree on the weights to begin with.

    A fresh run takes the engine's own first version, step 0 of recipe's policy, as it is. Where
    the engine is ahead of these weights (it holds a version published after the checkpoint, or
    by a run that never wrote one) they are published under a new lineage.
    """
    newest = parallel.from_first(run.client.policy() if run.client is not None else None)
    if run.client is not None:
        sweep(run.policies, newest)
    if not resumed and newest is not None and newest.step == 0:
        run.version = newest
        run.report.say(f"training starts from {newest}, {run.policy.source}")
        return
    ahead: WeightVersion | None = None
    if run.client is not None:
        same = newest is not None and newest.lineage == run.version.lineage
        if newest is not None and (not same or newest.step > run.version.step):
            ahead = newest
    ahead = parallel.from_first(ahead)
    parent: WeightVersion | None = None
    if ahead is not None:
        # Without a checkpoint these are the weights that the engine's lineage began with.
        parent = run.version if resumed else replace(ahead, step=0)
        lineage = parallel.from_first(secrets.token_hex(4))
        run.version = WeightVersion(lineage=lineage, step=run.version.step)
        run.report.say(
            f"the engine holds {ahead}, these weights are {parent}: going on as {run.version}"
        )
    run.offered = publish(
        run.policy,
        run.client,
        run.policies,
        run.version,
        parent=parent,
        kept=run.table.keep_policies,
    ).folder
    if resumed:
        acknowledge(run)
    run.report.say(f"published {run.version} from {run.policy.source}")


def warn_of_long_rows(run: Run) -> None:
    """Says so where the longest response that the recipe allows does not fit the memory."""
    longest = min(
        run.recipe.shared.task.limits.response,
        int(run.policy.bridge.hf_config.max_position_embeddings),
    )
    vocabulary = int(run.policy.shape["vocabulary"]) // parallel.tensor_size()
    sentence = too_long(longest, vocabulary, free_bytes(), mend="set task.limits.response")
    if sentence is not None:
        run.report.say(sentence)


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
        offer(run)
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


def offer(run: Run) -> None:
    """The version to the samplers. Weights that a broken step left alone are not written again."""
    if run.broken:
        published = advance(run.client, run.version, run.offered)
    else:
        published = publish(
            run.policy, run.client, run.policies, run.version, kept=run.table.keep_policies
        )
    run.offered = published.folder
    run.seconds["export_s"] = published.export_s
    run.seconds["publish_s"] = published.publish_s
    run.seconds["paused_s"] = published.paused_s


def save(run: Run) -> None:
    """A checkpoint of weights and ledger, then the acknowledgement of what it holds."""
    began = time.monotonic()
    state = {
        **identity(run.recipe, run.table, run.policy),
        "lineage": run.version.lineage,
        "step": run.version.step,
        "mark": parallel.from_first(run.ledger.mark),
    }
    run.checkpoints.save(run.policy, run.version.step, run.version.lineage, state, run.ledger)
    acknowledge(run)
    run.saved = run.version.step
    run.seconds["checkpoint_s"] = time.monotonic() - began


def acknowledge(run: Run) -> None:
    """Tells the engine what the newest checkpoint holds; the ledger need not name it any longer."""
    if run.client is not None:
        run.client.acknowledge(run.ledger.mark)
        run.ledger.settle(run.ledger.mark)


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


def tell(
    run: Run, at: WeightVersion, leased: Leased, update: Update, gap: dict[str, float]
) -> None:
    """Metrics line, TensorBoard, progress.

    A line's seconds are those since the line before, with the checkpoint that was written then.
    """
    now = time.monotonic()
    seconds = {**run.seconds, "step_s": now - run.marked}
    run.marked, run.seconds = now, {}
    if update.dropped:
        run.report.say(
            f"step {run.version.step}: {len(update.dropped)} sequences left the batch, their "
            f"log-probs, loss or gradients were not finite; the first is of {update.dropped[0]}"
        )
    if run.broken:
        run.report.say(
            f"step {run.version.step}: no finite gradient, the weights stay "
            f"({run.broken} of {MOST_BROKEN} steps in a row)"
        )
    facts = trajectory_stats(leased.groups, at)
    values: dict[str, Any] = {
        "version": str(run.version),
        "lineage": run.version.lineage,
        **facts,
        **training_stats(update.sums),
        **gap,
        "grad_norm": update.grad_norm,
        "learning_rate": update.rate,
        "skipped_update": update.skipped,
        "worthless_steps": run.worthless,
        "nonfinite_rows": len(update.dropped),
        "nonfinite_updates": update.broken,
        "tokens_per_s": update.tokens / seconds["train_s"],
        "duplicate_groups": leased.duplicates,
        "conflicting_groups": leased.conflicts,
        **seconds,
    }
    if run.log is not None:
        run.log.write(run.version.step, values)
    run.report.step(
        run.version.step,
        f"reward {facts.get('reward', 0.0):.3f}  gap {gap.get('gap_max', float('nan')):.1e}  "
        f"stale {facts.get('staleness_mean', 0.0):.1f}  lease {seconds['lease_s']:.1f} s  "
        f"train {seconds['train_s']:.1f} s  publish {seconds.get('publish_s', 0.0):.1f} s",
    )
