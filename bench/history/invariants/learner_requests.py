"""Requests of the learner: a publish that is repeated, and a learner that lost the run."""

from __future__ import annotations

from collections.abc import Mapping

from bench.history.events import (
    Claimed,
    LearnerRefused,
    Loaded,
    Planned,
    Published,
    Publishing,
    Seen,
    SupersededRequest,
)
from bench.history.findings import Findings, Handler, Invariant, Judge
from toolwright.types import WeightVersion

PUBLISH = "PublishWeights"
AGAIN = Invariant(
    name="a_repeated_publish_is_accepted",
    promise="The newest version, published again, is not refused as a wrong version.",
    source="engine/serving/publish/publishing.py",
)
SUPERSEDED = Invariant(
    name="superseded_learners_are_refused",
    promise="An acknowledgement of a learner that another one has superseded is refused.",
    source="engine/serving/delivery/claims.py",
)
MOVES = Invariant(
    name="superseded_learners_move_no_sampler",
    promise="No server takes weights of a learner after another one has claimed the run.",
    source="engine/serving/publish/publishing.py",
)


class LearnerRequests(Judge):
    invariants = (AGAIN, SUPERSEDED, MOVES)

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
            LearnerRefused: self._refused,
            SupersededRequest: self._superseded,
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
                f"{event.server} took {event.version} of {learner} after {claim.learner} had "
                "claimed the run",
                event.server,
                str(event.version),
            )

    def _published(self, _index: int, event: Published) -> None:
        if event.version == self._newest:
            self.findings.judged(AGAIN)
        self._newest = event.version

    def _refused(self, index: int, event: LearnerRefused) -> None:
        if event.method == PUBLISH and event.version == self._newest is not None:
            self.findings.judged(AGAIN)
            if event.reason == "WRONG_VERSION":
                self.findings.breaks(
                    AGAIN,
                    index,
                    f"{event.version} is the newest version, and its publish was refused",
                    str(event.version),
                )

    def _superseded(self, index: int, event: SupersededRequest) -> None:
        self.findings.judged(SUPERSEDED)
        if event.accepted:
            self.findings.breaks(
                SUPERSEDED, index, "an acknowledgement of a superseded learner was accepted"
            )
