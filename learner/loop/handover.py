"""What leaves a step: a version for samplers, a checkpoint for the disk, a mark for the engine."""

from __future__ import annotations

import time

from learner.loop.state import Run, identity
from learner.ranks import parallel
from learner.saving.publish import advance, publish


def offer(run: Run, *, moved: bool) -> None:
    """The version to the samplers.

    Weights that the step left alone are not written again, unless they still lie in policy.model:
    its path may be this machine's alone.
    """
    if not moved and run.offered != run.policy.source:
        settle(run)
        published = advance(run.client, run.version, run.offered)
        run.probe.elsewhere[run.version] = run.offered
    elif run.by_group is not None:
        published = run.by_group.publish(run.policy, run.version)
    else:
        published = publish(
            run.policy, run.client, run.policies, run.version, kept=run.table.keep_policies
        )
    run.offered = published.folder
    run.seconds["export_s"] = published.export_s
    run.seconds["publish_s"] = published.publish_s
    run.seconds["paused_s"] = published.paused_s
    run.seconds.update(published.more)
    if run.gauges is not None:
        run.gauges.published()


def settle(run: Run) -> None:
    """Returns when the newest version has its folder."""
    if run.by_group is not None:
        run.by_group.settle()


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
    run.saved = run.version.step
    acknowledge(run)
    if run.gauges is not None:
        run.gauges.saved()
    run.seconds["checkpoint_s"] = time.monotonic() - began


def acknowledge(run: Run) -> None:
    """Tells the engine what the newest checkpoint holds; the ledger need not name it any longer."""
    if run.client is not None:
        run.client.acknowledge(run.ledger.mark)
        run.ledger.settle(run.ledger.mark)
