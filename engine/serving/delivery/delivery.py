"""Groups to the learner: in order, identical when offered again, never too stale.

Delivery is at-least-once. The consumer names the last group that it used, gets later groups, and
acknowledges the groups that its checkpoint holds. This staleness check gives the guarantee of
docs/understand/staleness.md: segments that fail it carry no loss. A group without anything left to
train on is dropped, counted, and frees its places. So is a group with a record that no message
holds. The journal's content stays unchanged.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping

import structlog

from engine.serving.admission.train import TrainLane
from engine.serving.delivery.freshness import FreshGroup, stale_versions, without_stale
from engine.serving.journal.journal import Journal, StoredGroup
from engine.serving.telemetry.event_feed import Happened, unheard
from toolwright.common.v1 import reasons_pb2 as reasons
from toolwright.rpc.errors import ServiceError
from toolwright.rpc.options import MESSAGE_LIMIT
from toolwright.types import WeightVersion

MOST_RECORD = MESSAGE_LIMIT - 1024
"""Largest record of a trajectory, in bytes; a message has a little more."""

log = structlog.get_logger("delivery")


class Delivery:
    """The train consumer's view of the journal."""

    def __init__(
        self,
        journal: Journal,
        lane: TrainLane,
        *,
        max_staleness: int,
        delivered: Callable[[StoredGroup], None] = lambda _group: None,
        happened: Happened = unheard,
    ) -> None:
        """delivered: called with each group when the consumer gets it, every time."""
        self._delivered = delivered
        self._happened = happened
        self._journal = journal
        self._lane = lane
        self._max_staleness = max_staleness
        self._counted = 0
        self.old_tokens = 0
        """Tokens of the policy that were sent without loss because they were too old."""

    async def lease(
        self, *, after: int, limit: int, version: WeightVersion, wait: float
    ) -> AsyncIterator[StoredGroup]:
        """Up to `limit` groups after number `after`. Ends when `wait` seconds brought no group, or
        when no group can come.

        Raises ServiceError if groups after that number are gone, or for a version that was never
        published.
        """
        forks = await self._forks(version)
        counts = self._journal.counts
        if after < counts.durable_sequence:
            raise ServiceError(
                reasons.ERROR_REASON_UNKNOWN_SEQUENCE,
                f"groups up to {counts.durable_sequence} are acknowledged and gone, but the "
                f"consumer's mark is {after}",
                subject=str(after),
                fix="restore the newest checkpoint or use a new run.folder",
            )
        sent = 0
        while sent < limit:
            seen = self._lane.counts.arrived
            groups = await self._journal.groups_after(after, limit - sent)
            if not groups:
                if not await self._arrival(seen, wait):
                    return
                continue
            for group in groups:
                after = group.sequence
                fresh: FreshGroup | None = FreshGroup(group=group)
                why = "stale"
                if old := stale_versions(group.versions, version, forks, self._max_staleness):
                    # In a thread: all members are parsed, megabytes for each group.
                    fresh = await asyncio.to_thread(without_stale, group, old)
                if fresh is not None and max(map(len, fresh.group.members)) > MOST_RECORD:
                    fresh, why = None, "a record is larger than a message"
                if fresh is None:
                    log.warning("group_dropped", group=group.id, sequence=group.sequence, why=why)
                    await self._journal.drop(group.sequence)
                    self._lane.changed()
                    self._happened("dropped", group=group.id, sequence=group.sequence)
                    continue
                self._count_old(fresh)
                self._delivered(fresh.group)
                yield fresh.group
                sent += 1

    async def acknowledge(self, sequence: int) -> int:
        """Raises the durable mark; returns it. Raises ServiceError for a number that no group
        has."""
        counts = self._journal.counts
        if sequence > counts.last_sequence:
            raise ServiceError(
                reasons.ERROR_REASON_UNKNOWN_SEQUENCE,
                f"group {sequence} was never leased, the last one is {counts.last_sequence}",
                subject=str(sequence),
                fix="use the run.folder that the checkpoint belongs to",
            )
        mark = await self._journal.acknowledge(sequence)
        self._happened("acknowledged", sequence=mark)
        self._lane.changed()
        return mark

    async def _forks(self, version: WeightVersion) -> Mapping[str, WeightVersion]:
        """Versions at which lineages left their parents. Raises ServiceError if `version` belongs
        to no known lineage."""
        forks = await self._journal.forks()
        newest = await self._journal.newest_version()
        known = {*forks, *(parent.lineage for parent in forks.values())}
        if newest is not None:
            known.add(newest[0].lineage)
        if version.lineage not in known:
            raise ServiceError(
                reasons.ERROR_REASON_WRONG_LINEAGE,
                f"{version} is of a lineage that was never published here",
                subject=version.lineage,
                fix="publish the version before leasing groups for it",
            )
        return forks

    def _count_old(self, sent: FreshGroup) -> None:
        """Counts the old tokens of a group once, however often it is offered."""
        if sent.old_tokens and sent.group.sequence > self._counted:
            self._counted = sent.group.sequence
            self.old_tokens += sent.old_tokens
            log.info(
                "old_segments",
                group=sent.group.id,
                segments=sent.old_segments,
                tokens=sent.old_tokens,
            )

    async def _arrival(self, seen: int, wait: float) -> bool:
        """Returns True when more than `seen` groups were journaled within `wait` seconds. False at
        once if the lane has stopped sampling."""
        lane = self._lane
        try:
            async with asyncio.timeout(wait), lane.arrived:
                await lane.arrived.wait_for(
                    lambda: lane.counts.arrived > seen or lane.ends_fruitless
                )
        except TimeoutError:
            return False
        return lane.counts.arrived > seen
