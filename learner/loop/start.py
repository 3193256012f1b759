"""The start of a run: from a checkpoint or fresh, with the same weights as the engine.

`learner/intake/first_version.py` decides which version that is.
"""

from __future__ import annotations

import secrets

from learner.config.tables import LearnerTable
from learner.intake.agree import join
from learner.intake.first_version import first_version
from learner.intake.ledger import Ledger
from learner.loop.handover import acknowledge
from learner.loop.state import Run, identity
from learner.model.policy import Policy
from learner.ranks import parallel
from learner.saving.checkpoint import Checkpoints
from learner.saving.publish import sweep
from toolwright.recipe import Recipe
from toolwright.types import WeightVersion


def restore(
    recipe: Recipe, table: LearnerTable, policy: Policy, checkpoints: Checkpoints
) -> tuple[WeightVersion, Ledger, bool]:
    """(version, ledger, whether there was a checkpoint).

    Raises CheckpointError if the checkpoint does not fit the recipe.
    """
    resumed = checkpoints.resume(policy, identity(recipe, table, policy))
    if resumed is None:
        fresh = WeightVersion(lineage=_new_lineage(), step=0)
        return fresh, Ledger(), False
    state, ledger = resumed
    return WeightVersion(lineage=state["lineage"], step=int(state["step"])), ledger, True


def _new_lineage() -> str:
    """The same name on all ranks."""
    return parallel.from_first(secrets.token_hex(4))


def start(run: Run, *, resumed: bool) -> None:
    """Makes engine and learner agree on the first weights.

    A fresh run takes the engine's own first version, step 0 of the recipe's policy. If the engine
    has a newer version than these weights, they are published under a new lineage. That version was
    published after the checkpoint, or by a run that never wrote one.

    Raises MismatchError if engine and learner were started with different recipes or policies.
    """
    if run.table.offload:
        run.policy.states.leave()
    _agree(run, resumed=resumed)
    if run.client is not None and run.recipe.shared.run.share_gpu:
        run.client.resume_memory()  # a learner before may have died during its step


def _agree(run: Run, *, resumed: bool) -> None:
    joined: WeightVersion | None = None
    parent: WeightVersion | None = None
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
    if newest is not None:
        first = first_version(run.version if resumed else None, newest, _new_lineage)
        run.version = first.version
        if first.served:
            run.report.say(f"training starts from {newest}, {run.policy.source}")
            return
        if first.parent is not None:
            run.report.say(
                f"the engine has {newest}, these weights are {first.parent}: continuing as "
                f"{run.version}"
            )
            parent = first.parent
    run.published_folder = run.by_folder.publish(run.policy, run.version, parent).folder
    if resumed:
        acknowledge(run, run.ledger.mark)
    run.report.say(f"published {run.version} from {run.policy.source}")
