"""Requests of the learner that the engine must answer, and those that it must refuse."""

from __future__ import annotations

from collections.abc import Mapping

from bench.history.events import (
    Acknowledged,
    Claimed,
    Loaded,
    Planned,
    Published,
    Publishing,
    Refused,
    Returned,
    Seen,
)
from bench.history.findings import Findings, Handler, Invariant, Judge
from toolwright.types import WeightVersion

PUBLISH = "PublishWeights"
ACKNOWLEDGE = "AckGroups"
AGAIN = Invariant(
    name="a_publish_may_come_twice",
    promise="The newest version, published again, is answered as the first time.",
    source="engine/serving/publish/publishing.py",
)
FREES = Invariant(
    name="a_full_disk_takes_acknowledgements",
    promise="An acknowledgement makes room, so a full disk does not refuse it.",
    source="engine/serving/journal/writer.py, Writer.write, frees",
)
SUPERSEDED = Invariant(
    name="superseded_learners_are_refused",
    promise="A learner that another one has superseded is refused.",
    source="engine/serving/delivery/claims.py",
)
MOVES = Invariant(
    name="superseded_learners_move_no_sampler",
    promise="No server takes weights of a learner after another one has claimed the run.",
    source="engine/serving/publish/publishing.py",
)


class Requests(Judge):
    invariants = (AGAIN, FREES, SUPERSEDED, MOVES)

    def __init__(self, planned: Planned, findings: Findings) -> None:
        super().__init__(planned, findings)
        self._newest: WeightVersion | None = None
        self._publishers: dict[WeightVersion, str] = {}
        self._claim: Claimed | None = None
        self._moved: set[WeightVersion] = set()
        """Versions that servers began to take under the claim of their own learner."""

    def handlers(self) -> Mapping[type[Seen], Handler]:
        return {
            Claimed: self._claimed,
            Publishing: self._publishing,
            Loaded: self._loaded,
            Published: self._published,
            Acknowledged: self._acknowledged,
            Refused: self._refused,
            Returned: self._returned,
        }

    def _claimed(self, _index: int, event: Claimed) -> None:
        self._claim = event
        self._moved.add(event.version)

    def _publishing(self, _index: int, event: Publishing) -> None:
        self._publishers[event.version] = event.learner

    def _loaded(self, index: int, event: Loaded) -> None:
        claim, learner = self._claim, self._publishers.get(event.version, "")
        if claim is None or event.began is None or not learner:
            return
        self.findings.judged(MOVES)
        if learner == claim.learner or event.began <= claim.at:
            self._moved.add(event.version)
            return
        if event.version not in self._moved:
            self.findings.breaks(
                MOVES,
                index,
                f"{event.server} took {event.version} of {learner}, and {claim.learner} has the "
                "run",
                event.server,
                str(event.version),
            )

    def _published(self, _index: int, event: Published) -> None:
        if event.version == self._newest:
            self.findings.judged(AGAIN)
        self._newest = event.version

    def _acknowledged(self, _index: int, _event: Acknowledged) -> None:
        self.findings.judged(FREES)

    def _refused(self, index: int, event: Refused) -> None:
        if event.method == ACKNOWLEDGE and event.reason == "DISK_FULL":
            self.findings.breaks(FREES, index, "an acknowledgement was refused: the disk is full")
        if event.method == PUBLISH and event.version == self._newest is not None:
            self.findings.judged(AGAIN)
            if event.reason == "WRONG_VERSION":
                self.findings.breaks(
                    AGAIN,
                    index,
                    f"{event.version} is the newest version, and its publish was refused",
                    str(event.version),
                )

    def _returned(self, index: int, event: Returned) -> None:
        self.findings.judged(SUPERSEDED)
        if event.accepted:
            self.findings.breaks(
                SUPERSEDED, index, f"{event.method} of a superseded learner was accepted"
            )
