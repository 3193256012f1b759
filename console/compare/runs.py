"""What runs left on the disk: metrics line by line, evaluations, the recipes that they ran with.

A run that goes on may have written half a line; one that was killed wrote some steps twice, and
the later line of a step counts. A line that is not what it should be is left out and counted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from console.errors import RecordBroken
from console.record.files import EVALUATIONS, IMITATION, STEPS, read_evaluations, read_steps
from console.record.resolved import RESOLVED, read_resolved
from console.record.run import check_count, distinct
from console.record.types import Evaluation
from console.redact import redactor

METRICS = (STEPS, IMITATION)
"""Where a run's metrics are: those of `learner run`, else those of `learner sft`."""

Suites = Mapping[str, tuple[Evaluation, ...]]
"""By the suite's name, in the order of the steps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One run: `metrics` has the numbers of each step, in the order of the steps.

    recipe: dotted keys of the resolved recipes with their values as JSON. evaluations: by suite.
    remarks: what could not be read, a sentence each.
    """

    name: str
    metrics: Mapping[int, Mapping[str, float]]
    recipe: Mapping[str, str]
    evaluations: Suites = field(default_factory=dict)
    remarks: tuple[str, ...] = ()

    def curve(self, name: str) -> list[tuple[float, float]]:
        """(step, value) where the run has one."""
        return [(step, line[name]) for step, line in self.metrics.items() if name in line]

    def hours(self) -> dict[int, float]:
        """Hours until the end of each step: sums of step_s, so time between two lives is out."""
        passed = 0.0
        out = {}
        for step, line in self.metrics.items():
            passed += line.get("step_s", 0.0) + line.get("heldout_s", 0.0)
            out[step] = passed / 3600
        return out


def read_runs(folders: Sequence[Path]) -> list[Run]:
    """The runs of the folders. RecordBroken for one without metrics, OSError."""
    check_count(folders)
    names = distinct([folder.resolve() for folder in folders])
    return [_read(folder, name) for folder, name in zip(folders, names, strict=True)]


def differences(runs: Sequence[Run]) -> list[tuple[str, list[str]]]:
    """Keys of the recipes that are not the same in all runs, with each run's value; "" = absent."""
    keys = sorted({key for run in runs for key in run.recipe})
    rows = [(key, [run.recipe.get(key, "") for run in runs]) for key in keys]
    return [(key, values) for key, values in rows if len(set(values)) > 1]


def _read(folder: Path, name: str) -> Run:
    for file in (folder / place for place in METRICS):
        if file.is_file():
            metrics, remarks = read_metrics(file)
            resolved = read_resolved(folder)
            evaluations, of_suites = read_suites(folder / EVALUATIONS)
            without = [] if resolved.flat or resolved.remarks else [_without_recipe(folder)]
            return Run(
                name=name,
                metrics=metrics,
                recipe=redactor(names=False).table(resolved.flat),
                evaluations=evaluations,
                remarks=(*remarks, *of_suites, *resolved.remarks, *without),
            )
    raise RecordBroken(
        f"{folder} has neither {METRICS[0]} nor {METRICS[1]}: name the run.folder of a run that "
        "has made a step"
    )


def read_metrics(file: Path) -> tuple[dict[int, Mapping[str, float]], list[str]]:
    """(numbers by step, remarks). RecordBroken when no line can be used."""
    steps, remarks = read_steps(file)
    if not steps:
        raise RecordBroken(f"{file} has no line with the metrics of a step")
    return {step.step: step.values for step in steps}, remarks


def read_suites(file: Path) -> tuple[Suites, list[str]]:
    """(evaluations by suite, remarks). A run without any is empty, and nothing is said of it."""
    found, remarks = read_evaluations(file)
    suites: dict[str, tuple[Evaluation, ...]] = {}
    for one in found:
        suites[one.suite] = (*suites.get(one.suite, ()), one)
    return suites, remarks


def _without_recipe(folder: Path) -> str:
    return f"{folder} has none of {', '.join(RESOLVED)}: its recipe is not compared"
