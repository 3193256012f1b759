"""Results of a step: a version for samplers, a checkpoint on disk, an acknowledgement."""

from __future__ import annotations

import time

from learner.loop.state import Run, identity
from learner.ranks import parallel


def offer(run: Run, *, moved: bool) -> None:
    """Publishes the version to the samplers.

    Weights that did not move are not written again, unless they still lie in policy.model: its path
    may exist on this machine alone.
    """
    if not moved and run.published_folder != run.policy.source:
        run.publisher.settle()
        published = run.by_folder.republish(run.version, run.published_folder)
        run.probe.elsewhere[run.version] = run.published_folder
    else:
        published = run.publisher.publish(run.policy, run.version)
    run.published_folder = published.folder
    run.seconds["export_s"] = published.export_s
    run.seconds["publish_s"] = published.publish_s
    run.seconds["paused_s"] = published.paused_s
    run.seconds.update(published.more)
    if run.gauges is not None:
        run.gauges.published()


def save(run: Run) -> None:
    """Writes a checkpoint of weights and ledger, then acknowledges its groups."""
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
    """Acknowledges the groups of the newest checkpoint; the ledger then drops their names."""
    if run.client is not None:
        run.client.acknowledge(run.ledger.mark)
        run.ledger.settle(run.ledger.mark)
