"""How a run begins: from a checkpoint or afresh, and with the weights that the engine holds too.

Weights that die with the process between publish and checkpoint belong to an abandoned lineage:
the resumed run opens a new one, published before anything is leased (see `start`).
"""

from __future__ import annotations

import secrets
from dataclasses import replace

from learner.config.tables import LearnerTable, longest_response
from learner.intake.agree import join
from learner.intake.ledger import Ledger
from learner.loop.handover import acknowledge
from learner.loop.state import Run, identity
from learner.model.policy import Policy
from learner.ranks import parallel
from learner.saving.checkpoint import Checkpoints, check_fits, read_state
from learner.saving.publish import publish, sweep
from learner.training.memory import free_bytes, token_bytes, too_long
from toolwright.recipe import Recipe
from toolwright.types import WeightVersion


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


def start(run: Run, *, resumed: bool) -> None:
    """Makes engine and learner agree on the weights to begin with.

    A fresh run takes the engine's own first version, step 0 of recipe's policy, as it is. Where
    the engine is ahead of these weights (it holds a version published after the checkpoint, or
    by a run that never wrote one) they are published under a new lineage. MismatchError where the
    two were started with different things.
    """
    joined: WeightVersion | None = None
    if run.client is not None:
        joined = join(
            run.client,
            run.recipe,
            run.policy.source,
            lineage=run.version.lineage if resumed else "",
            say=run.report.say,
        )
    newest = parallel.from_first(joined)
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
    allowed, key = longest_response(run.recipe.shared)
    longest = min(
        allowed,
        int(run.policy.bridge.hf_config.max_position_embeddings),
    )
    a_token = token_bytes(run.policy.config, run.table.recompute)
    sentence = too_long(longest, a_token, free_bytes(), mend=f"set {key}")
    if sentence is not None:
        run.report.say(sentence)
