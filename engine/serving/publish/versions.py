"""Which version may follow which: steps only grow along a lineage, and lineages form a tree.

A new lineage names the version at which it left its parent, or begins at step 0, which leaves the
run's first version. A lineage that was left is over.
"""

from __future__ import annotations

from engine.serving.journal.journal import Journal
from toolwright.common.v1 import reasons_pb2 as reasons
from toolwright.rpc.errors import ServiceError
from toolwright.types import WeightVersion


async def check_next(
    journal: Journal,
    current: WeightVersion,
    version: WeightVersion,
    parent: WeightVersion | None,
) -> WeightVersion | None:
    """The parent of a new lineage; None if the lineage goes on. Raises ServiceError for a version
    that is not next."""
    if version.lineage == current.lineage:
        if version.step <= current.step:
            raise ServiceError(
                reasons.ERROR_REASON_WRONG_VERSION,
                f"{version} is not newer than {current}",
                subject=str(version),
                fix="a resume from an older checkpoint opens a new lineage",
            )
        return None
    root, *others = await lineages(journal, current)
    known = {root, *others}
    if version.lineage in known:
        raise ServiceError(
            reasons.ERROR_REASON_WRONG_LINEAGE,
            f"lineage {version.lineage} was left for {current.lineage}",
            subject=version.lineage,
            fix="a resume from an older checkpoint opens a new lineage",
        )
    if parent is not None:
        if parent.lineage not in known:
            raise ServiceError(
                reasons.ERROR_REASON_WRONG_LINEAGE,
                f"{version} names {parent} as its parent, which was never published here",
                subject=parent.lineage,
                fix="use the run.folder that the checkpoint belongs to, or a new one",
            )
        return parent
    if version.step == 0:
        counts = journal.counts
        if counts.durable_sequence > 0:
            raise ServiceError(
                reasons.ERROR_REASON_WRONG_LINEAGE,
                f"groups up to {counts.durable_sequence} are acknowledged and gone, but the "
                "learner begins anew",
                subject=version.lineage,
                fix="restore the learner's checkpoint or use a new run.folder",
            )
        return WeightVersion(lineage=root, step=0)
    raise ServiceError(
        reasons.ERROR_REASON_WRONG_LINEAGE,
        f"{version} opens a lineage and names no parent; current is {current}",
        subject=version.lineage,
    )


async def lineages(journal: Journal, current: WeightVersion) -> tuple[str, ...]:
    """All lineages of the run, the first one first."""
    forks = await journal.forks()
    root = current.lineage
    while root in forks:
        root = forks[root].lineage
    return root, *forks
