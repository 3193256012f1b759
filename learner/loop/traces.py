"""A trace of each step, linked to the trajectories that it trained on.

Only the duration of a phase is known. So the phases are laid one after another, in a step's order,
from the end of the step before.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from learner.errors import CollectorError
from toolwright.tracing.exporter import Exporter
from toolwright.tracing.ids import root_span, span_id, trace_id
from toolwright.tracing.settings import CollectorUnclear, collector_of
from toolwright.tracing.spans import Link, Span
from toolwright.types import Group, WeightVersion

PROCESS = "learner"
PHASES = ("checkpoint", "lease", "train", "export", "publish")
"""Phases of a step in order. The checkpoint is that of the step before."""
MOST_LINKS = 128
"""Largest number of links of a step's span; OpenTelemetry's own library keeps as many."""
_NS = 1_000_000_000


class StepTraces:
    """Spans of one run's steps, on rank 0. `close` it at the end."""

    def __init__(self, run: str, exporter: Exporter) -> None:
        """run: the engine's id of the run."""
        self._run = run
        self.exporter = exporter

    def step(
        self, version: WeightVersion, groups: Sequence[Group], values: Mapping[str, Any]
    ) -> None:
        """Sends the spans of a step that ends now. values: its metrics line."""
        self.exporter.offer(step_spans(self._run, version, groups, values, time.time_ns()))

    def close(self) -> None:
        self.exporter.close()


def step_spans(
    run: str,
    version: WeightVersion,
    groups: Sequence[Group],
    values: Mapping[str, Any],
    now: int,
) -> list[Span]:
    """The step's span and, within it, those of its phases. now: Unix time in ns. Pure."""
    name = f"step {version}"
    trace, root = trace_id(run, name), span_id(run, name, "step")
    began = now - _ns(values["step_s"])
    trajectories = [one for group in groups for one in group.trajectories]
    numbers = {
        f"toolwright.{key}": values[key]
        for key in ("reward", "loss", "grad_norm", "tokens_per_s", "staleness_max")
        if values.get(key) is not None
    }
    spans = [
        Span(
            trace=trace,
            id=root,
            name="step",
            start_ns=began,
            end_ns=now,
            process=PROCESS,
            attributes={
                "toolwright.version": str(version),
                "toolwright.trajectories": len(trajectories),
                **numbers,
            },
            links=tuple(
                Link(trace=trace_id(run, one.id), span=root_span(run, one.id))
                for one in trajectories[:MOST_LINKS]
            ),
        )
    ]
    at = began
    for phase in PHASES:
        seconds = values.get(f"{phase}_s")
        if seconds is None:
            continue
        end = min(now, at + _ns(seconds))
        spans.append(
            Span(
                trace=trace,
                id=span_id(run, name, phase),
                parent=root,
                name=phase,
                start_ns=at,
                end_ns=end,
                process=PROCESS,
            )
        )
        at = end
    return spans


def step_traces(run: Callable[[], str], setting: str) -> StepTraces | None:
    """None if there is no collector; then `run` is not called.

    run: gives the engine's id of the run. setting: the recipe's run.traces. Raises CollectorError
    if it is not an address.
    """
    try:
        collector = collector_of(setting, os.environ)
    except CollectorUnclear as error:
        raise CollectorError(str(error)) from error
    return None if collector is None else StepTraces(run(), Exporter(collector, process=PROCESS))


def _ns(seconds: float) -> int:
    return round(seconds * _NS)
