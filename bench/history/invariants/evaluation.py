"""Finished evaluations as the run folder has them."""

from __future__ import annotations

from collections.abc import Mapping

from bench.history.events import Evaluated, Seen
from bench.history.findings import Handler, Invariant, Judge

WHOLE_SUITE = Invariant(
    name="evaluations_are_whole",
    promise="A finished evaluation has every row of its suite.",
    source="engine/serving/evaluation/lane.py; ARCHITECTURE.md, Evaluation",
)
ONE_VERSION = Invariant(
    name="evaluations_have_one_version",
    promise="All rows of an evaluation were written under the version that it names.",
    source="engine/serving/evaluation/lane.py; ARCHITECTURE.md, Evaluation",
)


class Evaluations(Judge):
    invariants = (WHOLE_SUITE, ONE_VERSION)

    def handlers(self) -> Mapping[type[Seen], Handler]:
        return {Evaluated: self._evaluated}

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
        if event.wrote:
            self.findings.judged(ONE_VERSION)
        other = next((one for one in event.wrote if one != event.version), None)
        if other is not None:
            self.findings.breaks(ONE_VERSION, index, f"{other} wrote in a row of {name}", name)
