"""Weights on servers: the first policy, and versions that the learner handed over."""

from __future__ import annotations

from collections.abc import Mapping

from bench.history.derived.publishes import Publishes
from bench.history.events import Loaded, Planned, Published, Publishing, Sampled, Seen
from bench.history.findings import Findings, Handler, Invariant, Judge

KNOWN = Invariant(
    name="served_versions_are_published",
    promise="Requests run under the first policy or a version that the learner published.",
    source="engine/serving/publish/publishing.py",
)


class Versions(Judge):
    invariants = (KNOWN,)

    def __init__(self, planned: Planned, findings: Findings) -> None:
        super().__init__(planned, findings)
        self._publishes = Publishes()
        self._unknown: list[tuple[int, Sampled]] = []

    def handlers(self) -> Mapping[type[Seen], Handler]:
        return {
            Loaded: self._learn,
            Publishing: self._learn,
            Published: self._learn,
            Sampled: self._sampled,
        }

    def _learn(self, _index: int, event: Loaded | Publishing | Published) -> None:
        self._publishes.see(event)

    def _sampled(self, index: int, event: Sampled) -> None:
        self._publishes.see(event)
        self.findings.judged(KNOWN)
        if self._publishes.knows(event.version):
            return
        if self._publishes.calls:
            self._breaks(index, event)
        else:  # a publish may go on, and its answer come later
            self._unknown.append((index, event))

    def _breaks(self, index: int, event: Sampled) -> None:
        self.findings.breaks(
            KNOWN,
            index,
            f"a request of {event.attempt or 'an attempt'} ran on {event.server} under "
            f"{event.version}, which was not published",
            event.server,
            event.attempt,
            str(event.version),
        )

    def finish(self, last: int) -> None:
        for index, event in self._unknown:
            if not self._publishes.knows(event.version):
                self._breaks(index, event)
