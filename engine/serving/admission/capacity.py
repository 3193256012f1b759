"""The number of trajectories that the staleness bound admits, and the staleness of one. Pure.

Spec 6.8: capacity = min(max_concurrent - running, (eta + v + 1) * B - (accepted + running)). The
first term is about places, which belong to members (`places.py`); the second is about groups.
"""

from __future__ import annotations

from collections.abc import Mapping

from toolwright.types import WeightVersion


def staleness_room(*, eta: int, version: int, batch: int, accepted: int, running: int) -> int:
    """Trajectories that the staleness bound still admits; below 0 means wait. This is the second
    term of the formula above."""
    return (eta + version + 1) * batch - (accepted + running)


def staleness(
    current: WeightVersion, sampled: WeightVersion, forks: Mapping[str, WeightVersion]
) -> int:
    """Optimizer steps between the weights that sampled and those that will train.

    forks: lineage -> the version of the parent lineage that it left. Along one lineage the result
    is the difference of steps. Across a fork it is the steps down to the fork and up again. Raises
    ValueError if the two have no common ancestor.
    """
    ancestors = {current.lineage: current.step}
    at = current
    while (parent := forks.get(at.lineage)) is not None:
        at = parent
        ancestors[at.lineage] = at.step
    up = 0
    at = sampled
    while at.lineage not in ancestors:
        parent = forks.get(at.lineage)
        if parent is None:
            raise ValueError(f"{sampled} and {current} have no common ancestor")
        up += at.step - parent.step
        at = parent
    reached = ancestors[at.lineage]
    common = min(at.step, reached)
    return up + (at.step - common) + (current.step - common)
