"""The version with which a learner begins or goes on. Pure.

Weights that died with a learner between publish and checkpoint belong to an abandoned lineage. The
learner that goes on opens a new lineage at its checkpoint, and publishes it before it leases.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from toolwright.types import WeightVersion


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstVersion:
    """parent: the version that a new lineage leaves, None if no lineage is opened. served: the
    samplers have these weights, so nothing is published."""

    version: WeightVersion
    parent: WeightVersion | None = None
    served: bool = False


def first_version(
    saved: WeightVersion | None, newest: WeightVersion, new_lineage: Callable[[], str]
) -> FirstVersion:
    """saved: the checkpoint's version, None without a checkpoint. newest: the engine's newest one.
    new_lineage: makes the name of a lineage, if one is opened.

    Without a checkpoint the learner has the weights that the engine's lineage began with.
    """
    if saved is None and newest.step == 0:
        return FirstVersion(version=newest, served=True)
    begun = saved or replace(newest, step=0)
    if newest.lineage == begun.lineage and newest.step <= begun.step:
        return FirstVersion(version=begun)
    return FirstVersion(version=replace(begun, lineage=new_lineage()), parent=begun)
