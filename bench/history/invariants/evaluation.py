"""Evaluations: their requests, and the finished ones as the run folder has them."""

from __future__ import annotations

from collections.abc import Mapping

from bench.history.derived.publishes import Publishes
from bench.history.events import Evaluated, Loaded, Planned, Publishing, Sampled, Seen
from bench.history.findings import Findings, Handler, Invariant, Judge
from bench.history.names import evaluated_version

WHOLE_SUITE = Invariant(
    name="evaluations_are_whole",
    promise="A finished evaluation has every row of its suite, unless new weights cut it.",
    source="engine/serving/evaluation/lane.py; ARCHITECTURE.md, Evaluation",
)
ONE_VERSION = Invariant(
    name="evaluations_have_one_version",
    promise="All rows of an evaluation were written under the version that it names.",
    source="engine/serving/evaluation/lane.py; ARCHITECTURE.md, Evaluation",
)
OLD_WEIGHTS = Invariant(
    name="evaluations_keep_their_weights",
    promise="No request of an evaluation runs under weights that were published after it began.",
    source="engine/serving/evaluation/lane.py; engine/serving/publish/publishing.py",
)


class Evaluations(Judge):
    invariants = (WHOLE_SUITE, ONE_VERSION, OLD_WEIGHTS)

    def __init__(self, planned: Planned, findings: Findings) -> None:
        super().__init__(planned, findings)
        self._publishes = Publishes()

    def handlers(self) -> Mapping[type[Seen], Handler]:
        return {
            Evaluated: self._evaluated,
            Loaded: self._learn,
            Publishing: self._learn,
            Sampled: self._sampled,
        }

    def _learn(self, _index: int, event: Loaded | Publishing) -> None:
        self._publishes.see(event)

    def _sampled(self, index: int, event: Sampled) -> None:
        self._publishes.see(event)
        named = evaluated_version(event.attempt)
        if named is None:
            return
        self.findings.judged(OLD_WEIGHTS)
        if self._publishes.is_later(event.version, than=named):
            self.findings.breaks(
                OLD_WEIGHTS,
                index,
                f"{event.attempt} ran on {event.server} under {event.version}",
                event.attempt,
                event.server,
                str(event.version),
            )

    def _evaluated(self, index: int, event: Evaluated) -> None:
        name = f"{event.suite}@{event.version}"
        self.findings.judged(WHOLE_SUITE)
        if event.rows != event.expected_rows:
            self.findings.breaks(
                WHOLE_SUITE,
                index,
                f"{name} was reported with {event.rows} of {event.expected_rows} rows",
                name,
            )
        if event.cut and self._publishes.is_newest(event.version):
            self.findings.breaks(
                WHOLE_SUITE, index, f"{name} was cut, and no later version was published", name
            )
        if event.wrote:
            self.findings.judged(ONE_VERSION)
        other = next((one for one in event.wrote if one != event.version), None)
        if other is not None:
            self.findings.breaks(ONE_VERSION, index, f"{other} wrote in a row of {name}", name)
