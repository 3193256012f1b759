"""A trace of each step, linked to the trajectories that it trained on.

The phases are known by their seconds: they are laid one after another, in the order in which a step
has them, from the moment at which the step before was told.
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
"""Of a step's seconds, in order: the checkpoint is that of the step before."""
MOST_LINKS = 128
"""Trajectories that a step's span names: as many links as OpenTelemetry's own library keeps."""
_NS = 1_000_000_000


class StepTraces:
    """Of one run, on rank 0. `close` at the end."""

    def __init__(self, run: str, exporter: Exporter) -> None:
        """run: the word that the engine has for it."""
        self._run = run
        self.exporter = exporter

    def step(
        self, version: WeightVersion, groups: Sequence[Group], values: Mapping[str, Any]
    ) -> None:
        """A step that ends now. values: its metrics line."""
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
    """The step's span and those of its phases, within it. now: Unix time in ns. Pure."""
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


def step_traces(run: Callable[[], str], told: str) -> StepTraces | None:
    """told: `run.traces`. None where nobody wants them: then nobody is asked for the run's word.
    CollectorError."""
    try:
        collector = collector_of(told, os.environ)
    except CollectorUnclear as error:
        raise CollectorError(str(error)) from error
    return None if collector is None else StepTraces(run(), Exporter(collector, process=PROCESS))


def _ns(seconds: float) -> int:
    return round(seconds * _NS)
