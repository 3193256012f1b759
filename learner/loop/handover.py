"""Results of a step: a version for samplers, a checkpoint on disk, an acknowledgement."""

from __future__ import annotations

import contextlib
import time
import traceback

from learner.loop.state import Run, Saving, identity
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
    run.memory_released = False
    run.published_folder = published.folder
    run.seconds["export_s"] = published.export_s
    run.seconds["publish_s"] = published.publish_s
    run.seconds["paused_s"] = published.paused_s
    run.seconds.update(published.more)
    if run.gauges is not None:
        run.gauges.published()


def return_memory(run: Run, failure: BaseException) -> None:
    """Has the samplers take back the memory of a step that failed before its publish.

    One short try, since the engine may be gone too. failure: the tensors of its frames are freed.
    """
    if not run.memory_released:
        return
    traceback.clear_frames(failure.__traceback__)
    if run.table.offload:
        with contextlib.suppress(RuntimeError):  # a CUDA error lasts for the whole process
            run.policy.states.leave()
    if run.client is not None and not run.client.resume_memory_now():
        run.report.say("the samplers stay without their memory until a learner starts")


def save(run: Run) -> None:
    """Begins a checkpoint of weights and ledger, after the one before it is complete."""
    began = time.monotonic()
    finish_save(run)
    state = {
        **identity(run.recipe, run.table, run.policy),
        "lineage": run.version.lineage,
        "step": run.version.step,
        "mark": parallel.from_first(run.ledger.mark),
    }
    run.checkpoints.begin(run.policy, run.version.step, run.version.lineage, state, run.ledger)
    run.saving = Saving(step=run.version.step, mark=state["mark"], began=began)
    if not run.table.background_checkpoints:
        finish_save(run)
    run.seconds["checkpoint_s"] = run.seconds.get("checkpoint_s", 0.0) + time.monotonic() - began


def finish_save_if_written(run: Run) -> None:
    """`finish_save` if rank 0 has written the checkpoint in progress; all ranks call it."""
    if run.saving is not None and parallel.from_first(run.checkpoints.written):
        finish_save(run)


def finish_save(run: Run) -> None:
    """Waits for the checkpoint in progress, then acknowledges its groups. All ranks call it.

    Raises CheckpointError if it could not be written.
    """
    if run.saving is None:
        return
    saving, run.saving = run.saving, None
    run.checkpoints.settle()
    run.saved = saving.step
    run.seconds["checkpoint_written_s"] = time.monotonic() - saving.began
    if run.gauges is not None:
        run.gauges.saved()
    acknowledge(run, saving.mark)


def acknowledge(run: Run, mark: int) -> None:
    """Acknowledges the groups up to the mark of the newest checkpoint.

    The ledger then drops their names.
    """
    if run.client is not None:
        run.client.acknowledge(mark)
        run.ledger.settle(mark)
