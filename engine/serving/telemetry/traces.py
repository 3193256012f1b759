"""Traces of training trajectories for a collector. They hold spans of the record when a group is
whole, and how long the group then waited for the learner.

Traces add nothing to the path of tokens and calls: they read existing records.
"""

from __future__ import annotations

import os
import time

from engine.core.trajectory.trace_spans import PROCESS, spans_of
from engine.errors import StartupError
from engine.serving.journal.groups import StoredGroup
from toolwright.tracing.exporter import Exporter
from toolwright.tracing.ids import root_span, span_id, trace_id
from toolwright.tracing.settings import CollectorUnclear, collector_of
from toolwright.tracing.spans import Span
from toolwright.types import Trajectory

MOST_WHOLE = 4096
"""Groups whose completion time is remembered; the oldest are forgotten first."""


class Traces:
    """Traces of one run. `close` may take seconds: call it in a thread."""

    def __init__(self, run: str, exporter: Exporter) -> None:
        self._run = run
        self.exporter = exporter
        self._whole: dict[str, int] = {}
        """Unix time in ns at which a group was whole, by its id."""

    def finished(self, trajectory: Trajectory) -> None:
        """Records a scored trajectory of a whole group."""
        self._whole.setdefault(trajectory.group_id, time.time_ns())
        if len(self._whole) > MOST_WHOLE:
            del self._whole[next(iter(self._whole))]
        self.exporter.offer(spans_of(self._run, trajectory))

    def delivered(self, group: StoredGroup) -> None:
        """Records once that the learner gets the group: a repeated request gets the same group."""
        whole = self._whole.pop(group.id, None)
        if whole is None:  # of an earlier life, or already recorded
            return
        now = max(whole, time.time_ns())
        names = [f"{group.id}-{index}" for index in range(len(group.members))]
        self.exporter.offer(
            [
                Span(
                    trace=trace_id(self._run, name),
                    id=span_id(self._run, name, "delivery"),
                    parent=root_span(self._run, name),
                    name="delivery",
                    start_ns=whole,
                    end_ns=now,
                    process=PROCESS,
                    attributes={"toolwright.sequence": group.sequence},
                )
                for name in names
            ]
        )

    def close(self) -> None:
        self.exporter.close()


def traces_of(run: str, setting: str) -> Traces | None:
    """Traces of a run; None if they are off. setting: `run.traces`. Raises StartupError if it
    cannot be used."""
    try:
        collector = collector_of(setting, os.environ)
    except CollectorUnclear as error:
        raise StartupError(str(error)) from error
    return None if collector is None else Traces(run, Exporter(collector, process=PROCESS))
