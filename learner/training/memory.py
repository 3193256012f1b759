"""Memory of the longest sequence, reported before the first step.

The estimate is `toolwright.model.learner_memory`'s, as `engine check` and the doctor print it.
"""

from __future__ import annotations

from collections.abc import Callable

from learner.config.tables import TrainingTable
from learner.model.policy import Policy
from learner.ranks import device, parallel
from toolwright.model.learner_memory import estimate, read_decoder, report


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
    decoder = read_decoder(policy.source)
    cuda, data = device.memory_bytes(), parallel.data_size()
    loaded = estimate(decoder, table, cuda=cuda, data=data).states
    clause, fix = report(
        decoder,
        table,
        longest,
        device.free_bytes() + loaded,
        name=name,
        cuda=cuda,
        data=data,
    )
    say(f"memory: {clause}")
    if fix is not None:
        say(f"warning: this may run out of memory: {fix}")
