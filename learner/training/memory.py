"""Memory of the longest sequence, reported before the first step.

The estimate is `toolwright.model.learner_memory`'s, as `engine check` and the doctor print it.
"""

from __future__ import annotations

from collections.abc import Callable

from learner.config.training import TrainingTable
from learner.model.policy import Policy
from learner.ranks import device, parallel
from toolwright.model.learner_memory import read_decoder, report


def report_memory(
    policy: Policy,
    table: TrainingTable,
    longest: tuple[int, str],
    say: Callable[[str], object],
    *,
    name: str,
) -> None:
    """Reports the estimate of this rank, and the fix if it does not fit.

    longest: (tokens of the longest row, the key that limits it). name: the table's in the recipe.
    """
    clause, fix = report(
        read_decoder(policy.source),
        table,
        longest,
        device.free_bytes(),
        name=name,
        cuda=device.memory_bytes(),
        data=parallel.data_size(),
        loaded=True,
    )
    say(f"memory: {clause}")
    if fix is not None:
        say(f"warning: this may run out of memory: {fix}")
