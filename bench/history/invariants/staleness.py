"""The staleness bound: what is admitted, and which tokens carry loss."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bench.history.derived.lineages import Lineages
from bench.history.events import (
    Admitted,
    LifeBegan,
    Loaded,
    Offered,
    Planned,
    Published,
    Publishing,
    Restored,
    Sampled,
    Seen,
    Segment,
    Trained,
)
from bench.history.excerpt import ADMISSIONS
from bench.history.findings import Findings, Handler, Invariant, Judge
from toolwright.types import Author

ADMISSION = Invariant(
    name="admission_keeps_the_bound",
    promise="An admission leaves accepted + running within (eta + v + 1) * batch, and within the "
    "run's steps * batch.",
    source="engine/serving/admission/capacity.py; docs/understand/staleness.md",
)
FRESH = Invariant(
    name="no_old_token_carries_loss",
    promise="No token that carries loss is more than eta steps from the version of its lease.",
    source="engine/serving/delivery/freshness.py; docs/understand/staleness.md",
)
KEPT = Invariant(
    name="fresh_tokens_keep_loss",
    promise="The policy's tokens within eta steps carry loss: freshness drops only what is old.",
    source="engine/serving/delivery/freshness.py",
)
OWN_LOSS = Invariant(
    name="only_the_policy_carries_loss",
    promise="A segment that carries loss was written by the policy, under a named version.",
    source="ARCHITECTURE.md, The record",
)


class Staleness(Judge):
    invariants = (ADMISSION, FRESH, KEPT, OWN_LOSS)

    def __init__(self, planned: Planned, findings: Findings) -> None:
        super().__init__(planned, findings)
        self._lineages = Lineages()
        self._published: set[str] = set()
        """Lineages with an answered publish."""
        self._accepted = 0
        self._running = 0

    def handlers(self) -> Mapping[type[Seen], Handler]:
        return {
            Publishing: self._learn,
            Trained: self._learn,
            Restored: self._learn,
            Loaded: self._learn,
            Sampled: self._learn,
            Published: self._publish,
            LifeBegan: self._life_began,
            Admitted: self._admitted,
            Offered: self._offered,
        }

    def _learn(self, _index: int, event: Any) -> None:
        self._lineages.see(event)

    def _publish(self, _index: int, event: Published) -> None:
        self._published.add(event.version.lineage)
        self._lineages.see(event)

    def _life_began(self, _index: int, _event: LifeBegan) -> None:
        self._running = 0

    def _admitted(self, index: int, event: Admitted) -> None:
        plan = self.planned
        grew = event.running > self._running
        # A group that was just stored may be in both counts: the engine then admits less, not more.
        twice = plan.group_size if event.accepted > self._accepted else 0
        self._accepted, self._running = event.accepted, event.running
        if not grew:  # a rewind lowers the bound, and nothing that runs is stopped for it
            return
        self.findings.judged(ADMISSION)
        total = event.accepted + event.running
        bound = min(plan.eta + event.step + 1, max(plan.steps, 0)) * plan.batch
        if total - twice > bound:
            self.findings.breaks(
                ADMISSION,
                index,
                f"{event.accepted} accepted and {event.running} running trajectories are {total} "
                f"at step {event.step}; the bound is {bound}",
                ADMISSIONS,
            )

    def _offered(self, index: int, event: Offered) -> None:
        self._lineages.see(event)
        for member in event.members:
            for segment in member.segments:
                if segment.trainable:
                    self._carries_loss(index, event, member.trajectory, segment, member.masked)
                elif segment.author == Author.MODEL.name and not member.masked:
                    self._carries_none(index, event, member.trajectory, segment)

    def _carries_loss(
        self, index: int, event: Offered, trajectory: str, segment: Segment, masked: bool
    ) -> None:
        found, version = self.findings, segment.version
        about = event.group, f"sequence {event.sequence}", trajectory
        found.judged(OWN_LOSS)
        if segment.author != Author.MODEL.name or version is None:
            found.breaks(
                OWN_LOSS,
                index,
                f"{trajectory} carries loss on {len(segment.token_ids)} tokens by "
                f"{segment.author} with version {version}",
                *about,
            )
            return
        if masked:
            return
        found.judged(FRESH)
        found.judged(KEPT)
        distance = self._lineages.distance(event.version, version)
        if distance is None or distance > self.planned.eta:
            far = "without a common ancestor" if distance is None else f"{distance} steps away"
            found.breaks(
                FRESH,
                index,
                f"{trajectory} carries loss on {len(segment.token_ids)} tokens of {version}, "
                f"{far} from the lease's {event.version}; eta is {self.planned.eta}",
                *about,
            )

    def _carries_none(self, index: int, event: Offered, trajectory: str, segment: Segment) -> None:
        version = segment.version
        if version is None or not segment.token_ids:
            return
        if version.lineage != self._lineages.first and version.lineage not in self._published:
            return  # some servers took it, and its publish failed: the engine knows no fork of it
        self.findings.judged(KEPT)
        distance = self._lineages.distance(event.version, version)
        if distance is not None and distance <= self.planned.eta:
            self.findings.breaks(
                KEPT,
                index,
                f"{trajectory} carries no loss on {len(segment.token_ids)} tokens of {version}, "
                f"{distance} steps from the lease's {event.version}; eta is {self.planned.eta}",
                event.group,
                f"sequence {event.sequence}",
                trajectory,
            )
