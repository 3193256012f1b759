"""Evaluation trajectories to a reader that is not the learner: in order, until acknowledged.

Delivery is at-least-once, as in the training lane. Each measured row of a suite is a group of one
trajectory. There is no staleness bound, and no claim: readers never touch the training lane. The
newest `keep` trajectories are held. A reader that is slower loses the oldest, and the numbers show
it: they have no other gaps.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import structlog

from engine.serving.journal.journal import Journal, StoredGroup
from toolwright.common.v1 import reasons_pb2 as reasons
from toolwright.rpc.errors import ServiceError
from toolwright.types import Trajectory
from toolwright.wire import serialize, trajectory_to_proto

LEASED_AT_ONCE = 16
"""Groups that are read from the journal at once."""

log = structlog.get_logger("delivery")


class EvaluationDelivery:
    """The evaluation reader's view of the journal."""

    def __init__(self, journal: Journal, *, keep: int) -> None:
        """keep: trajectories that are held; 0 = none, and every lease is refused."""
        self._journal = journal
        self._keep = keep
        self._arrived = asyncio.Event()
        self._lost = 0

    async def add(self, trajectory: Trajectory, settings: str) -> None:
        """Keeps the trajectory of a measured row. settings: digest of the suite's settings."""
        if not self._keep:
            return
        data = serialize(trajectory_to_proto(trajectory))
        _, lost = await self._journal.add_evaluated(trajectory.id, settings, data, keep=self._keep)
        if lost and not self._lost:
            log.warning(
                "evaluation_trajectories_lost",
                kept=self._keep,
                fix="acknowledge them sooner, or raise engine.evaluation.keep",
            )
        self._lost += lost
        self._arrived.set()
        self._arrived = asyncio.Event()

    async def lease(self, *, after: int, limit: int, wait: float) -> AsyncIterator[StoredGroup]:
        """Up to `limit` groups after number `after`. Ends when `wait` seconds brought no group.

        Raises ServiceError if the recipe keeps no evaluation trajectories.
        """
        self._check()
        sent = 0
        while sent < limit:
            arrived = self._arrived
            few = min(LEASED_AT_ONCE, limit - sent)
            groups = await self._journal.evaluated_after(after, few)
            if not groups:
                try:
                    async with asyncio.timeout(wait):
                        await arrived.wait()
                except TimeoutError:
                    return
            for group in groups:
                after = group.sequence
                yield group
                sent += 1

    async def acknowledge(self, sequence: int) -> int:
        """Raises the durable mark; returns it. Raises ServiceError for a number that no group
        has."""
        self._check()
        last = await self._journal.last_evaluated()
        if sequence > last:
            raise ServiceError(
                reasons.ERROR_REASON_UNKNOWN_SEQUENCE,
                f"group {sequence} of the evaluation lane was never leased, the last one is {last}",
                subject=str(sequence),
            )
        return await self._journal.acknowledge_evaluated(sequence)

    def _check(self) -> None:
        if not self._keep:
            raise ServiceError(
                reasons.ERROR_REASON_INVALID_REQUEST,
                "this engine keeps no evaluation trajectories",
                subject="engine.evaluation.keep",
                fix="set engine.evaluation.keep to the number that a reader may leave waiting",
            )
