"""Weights on servers: only published ones, and the newest before a request.

A server may have a version while its publish goes on, so a version is known from `Publishing` on.
Without `Publishing` events it has to be published at some time.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping

from bench.history.events import Loaded, Planned, Published, Publishing, Sampled, Seen
from bench.history.findings import Findings, Handler, Invariant, Judge
from toolwright.types import WeightVersion

KNOWN = Invariant(
    name="served_versions_are_published",
    promise="Requests run under the first policy or a version that the learner published.",
    source="engine/serving/publish/publishing.py",
)
NEWEST = Invariant(
    name="requests_get_the_newest",
    promise="A request that begins after a publish runs under its version or a later one.",
    source="ARCHITECTURE.md: a server gets no request before it has loaded the newest version",
)


class Versions(Judge):
    invariants = (KNOWN, NEWEST)

    def __init__(self, planned: Planned, findings: Findings) -> None:
        super().__init__(planned, findings)
        self._first: WeightVersion | None = None
        self._order: dict[WeightVersion, int] = {}
        """Version to its place among those handed over; the first policy has 0."""
        self._answered: list[float] = []
        """When each publish was answered."""
        self._newest: list[int] = []
        """The newest version's place from then on."""
        self._calls = False
        self._unknown: list[tuple[int, Sampled]] = []

    def handlers(self) -> Mapping[type[Seen], Handler]:
        return {
            Loaded: self._loaded,
            Sampled: self._sampled,
            Publishing: self._publishing,
            Published: self._publish,
        }

    def _enter(self, version: WeightVersion) -> int:
        return self._order.setdefault(version, len(self._order))

    def _loaded(self, _index: int, event: Loaded) -> None:
        if not self._order:
            self._enter(event.version)

    def _publishing(self, _index: int, event: Publishing) -> None:
        self._calls = True
        self._enter(event.version)

    def _publish(self, _index: int, event: Published) -> None:
        place = self._enter(event.version)
        self._answered.append(event.at)
        self._newest.append(max(place, *self._newest[-1:]) if self._newest else place)

    def _sampled(self, index: int, event: Sampled) -> None:
        if not self._order:
            self._enter(event.version)
        self.findings.judged(KNOWN)
        place = self._order.get(event.version)
        if place is None:
            if self._calls:
                self._breaks(index, event)
            else:
                self._unknown.append((index, event))
            return
        if event.began is None or not self._answered:
            return
        self.findings.judged(NEWEST)
        before = bisect_left(self._answered, event.began)
        if before and place < self._newest[before - 1]:
            self.findings.breaks(
                NEWEST,
                index,
                f"a request of {event.attempt or 'an attempt'} began on {event.server} under "
                f"{event.version}, after a later version had been published",
                event.server,
                event.attempt,
                str(event.version),
            )

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
            if event.version not in self._order:
                self._breaks(index, event)
