"""The report of a step: metrics line, gauges, traces, progress."""

from __future__ import annotations

import time
from typing import Any

from learner.intake.lease import Leased
from learner.loop.state import Run
from learner.metrics import finite, task_stats, training_stats, trajectory_stats
from learner.training.update import MOST_BROKEN, Update
from toolwright.text.figures import compact
from toolwright.types import WeightVersion


def report_step(
    run: Run,
    at: WeightVersion,
    leased: Leased,
    update: Update,
    found: dict[str, float],
    worthless: str | None,
) -> dict[str, float]:
    """Reports a step. Returns the finite numbers of its metrics line.

    found: metrics of the advantages and of the sampler/learner gap. worthless: why the step taught
    nothing, if it did not.

    A line's seconds are those since the line before, including the checkpoint written since.
    """
    now = time.monotonic()
    seconds = {**run.seconds, "logprobs_s": update.logprobs_s, "step_s": now - run.marked}
    run.marked, run.seconds = now, {}
    if update.dropped:
        run.report.say(
            f"step {run.version.step}: {len(update.dropped)} sequences left the batch because "
            "their log-probs, loss or gradients were not finite; the first is of "
            f"{update.dropped[0]}"
        )
    if run.broken:
        run.report.say(
            f"step {run.version.step}: no finite gradient, so the weights did not move "
            f"({run.broken} of {MOST_BROKEN} steps in a row)"
        )
    facts = trajectory_stats(leased.groups, at)
    values: dict[str, Any] = {
        "version": str(run.version),
        "lineage": run.version.lineage,
        **facts,
        **training_stats(update.sums),
        **task_stats(leased.groups, at, update.sums, tuple(run.recipe.shared.tasks)),
        **update.task_gradients,
        **found,
        "grad_norm": update.grad_norm,
        "learning_rate": update.rate,
        "skipped_update": update.skipped,
        "worthless_steps": run.worthless,
        **({"worthless": worthless} if worthless else {}),
        "nonfinite_rewards": len(leased.nonfinite),
        "unreadable_images": len(leased.unreadable),
        "nonfinite_rows": len(update.dropped),
        "nonfinite_updates": update.broken,
        "tokens_per_s": update.tokens / seconds["train_s"],
        "duplicate_groups": leased.duplicates,
        "conflicting_groups": leased.conflicts,
        **_turned_away(run),
        **seconds,
    }
    if run.log is not None:
        run.log.write(run.version.step, values)
    if run.gauges is not None:
        run.gauges.step(run.version.step, values)
    if run.traces is not None:
        run.traces.step(run.version, leased.groups, values)
    reward = compact(facts.get("reward", 0.0))
    run.report.step(
        run.version.step,
        f"reward {reward}  gap {found.get('gap_max', float('nan')):.1e}  "
        f"stale {facts.get('staleness_mean', 0.0):.1f}  lease {seconds['lease_s']:.1f} s  "
        f"train {seconds['train_s']:.1f} s  publish {seconds.get('publish_s', 0.0):.1f} s",
    )
    return finite(values)


def _turned_away(run: Run) -> dict[str, int]:
    """Number of groups that dynamic sampling has discarded so far.

    Empty if the engine does not answer at once: the metrics line does not wait for it.
    """
    if run.client is None or run.recipe.shared.task.dynamic_sampling is None:
        return {}
    found = run.client.state_now()
    return {} if found is None else {"turned_away_groups": found.turned_away}
