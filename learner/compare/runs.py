"""What runs left on the disk: metrics line by line, evaluations, the recipes that they ran with.

A run that goes on may have written half a line; one that was killed wrote some steps twice, and
the later line of a step counts. A line that is not what it should be is left out and counted.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from learner.compare.evaluations import Suites, read_evaluations
from learner.compare.lines import number, objects, remark, step_of
from learner.errors import DataError

METRICS = ("learner.jsonl", "sft/sft.jsonl")
"""Where a run's metrics are: those of `learner run`, else those of `learner sft`."""
RESOLVED = ("engine.resolved.json", "learner.resolved.json", "sft.resolved.json")
LARGEST_RECIPE = 4 << 20
MOST_RUNS = 24


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
    """The runs of the folders. DataError for one without metrics."""
    if len(folders) > MOST_RUNS:
        raise DataError(
            f"{len(folders)} runs are more than a page can tell apart: at most {MOST_RUNS}"
        )
    names = distinct([folder.resolve() for folder in folders])
    return [_read(folder, name) for folder, name in zip(folders, names, strict=True)]


def distinct(folders: Sequence[Path]) -> list[str]:
    """The last parts of the paths, as many as tell them apart; twins have the same name."""
    most = max((len(folder.parts) for folder in folders), default=1)
    for count in range(1, most + 1):
        names = ["/".join(folder.parts[-count:]) for folder in folders]
        if len(set(names)) == len(set(folders)):
            return names
    return [str(folder) for folder in folders]


def differences(runs: Sequence[Run]) -> list[tuple[str, list[str]]]:
    """Keys of the recipes that are not the same in all runs, with each run's value; "" is none."""
    keys = sorted({key for run in runs for key in run.recipe})
    rows = [(key, [run.recipe.get(key, "") for run in runs]) for key in keys]
    return [(key, values) for key, values in rows if len(set(values)) > 1]


def _read(folder: Path, name: str) -> Run:
    for file in (folder / place for place in METRICS):
        if file.is_file():
            metrics, remarks = read_metrics(file)
            recipe, of_recipes = _read_recipes(folder)
            evaluations, of_suites = read_evaluations(folder)
            return Run(
                name=name,
                metrics=metrics,
                recipe=recipe,
                evaluations=evaluations,
                remarks=(*remarks, *of_suites, *of_recipes),
            )
    raise DataError(
        f"{folder} has neither {METRICS[0]} nor {METRICS[1]}: name the run.folder of a run that "
        "has made a step"
    )


def read_metrics(file: Path) -> tuple[dict[int, dict[str, float]], list[str]]:
    """(numbers by step, remarks). DataError when no line can be used."""
    found: dict[int, dict[str, float]] = {}
    broken: list[int] = []
    for place, values in objects(file):
        at = step_of(values) if values is not None else None
        if values is None or at is None:
            broken.append(place)
        else:
            numbers = ((key, number(value)) for key, value in values.items() if key != "step")
            found[at] = {key: value for key, value in numbers if value is not None}
    if not found:
        raise DataError(f"{file} has no line with the metrics of a step")
    return dict(sorted(found.items())), remark(file, broken, "metrics")


def _read_recipes(folder: Path) -> tuple[dict[str, str], list[str]]:
    recipe: dict[str, str] = {}
    remarks = []
    found = [folder / name for name in RESOLVED if (folder / name).is_file()]
    for file in found:
        try:
            with file.open("rb") as opened:
                recipe |= dict(_flat(json.loads(opened.read(LARGEST_RECIPE)), ()))
        except (OSError, ValueError, RecursionError) as error:
            remarks.append(f"{file} cannot be read ({error}): its keys are not compared")
    if not found:
        remarks.append(f"{folder} has none of {', '.join(RESOLVED)}: its recipe is not compared")
    return recipe, remarks


def _flat(value: Any, path: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """Dotted keys with their values as JSON; the shared tables stand at the top, and of a list of
    tables each under its name."""
    if isinstance(value, list) and (named := _by_name(value)):
        value = named
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            yield from _flat(inner, path if not path and key == "shared" else (*path, key))
    else:
        yield ".".join(path), json.dumps(value, ensure_ascii=False)


def _by_name(tables: list[Any]) -> dict[str, Any]:
    """Tables by their names, such as those of suites; empty where one has none, or shares it."""
    if not all(isinstance(table, dict) and isinstance(table.get("name"), str) for table in tables):
        return {}
    named = {table["name"]: {k: v for k, v in table.items() if k != "name"} for table in tables}
    return named if len(named) == len(tables) else {}
