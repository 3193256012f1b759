"""Every figure of a ladder as the plain data that ablate.json holds; table and page show no other.

Runs that are done count. A row with a run that failed, or is not done, has its means over what is
left and is not judged: what is left may be what went well.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from console.ablate.changes import unfair
from console.ablate.ladder import Ladder, Variation
from console.ablate.results import plots
from console.ablate.results.measures import (
    STEPS,
    Measure,
    Measured,
    measure,
    measures,
    threshold_of,
)
from console.ablate.results.statistics import Difference, difference
from console.ablate.standing import RungState, Standing
from console.config import BASE
from console.redact import Redactor, redactor
from console.report.suites import named_suites, shown_suites
from toolwright.statistics import Mean, mean_of

LONGEST_VALUE = 300
"""Letters of a recipe's value."""

Runs = Mapping[str, Sequence[Standing]]
"""By the variation's name, in the order of the seeds."""


def figures(ladder: Ladder, runs: Runs) -> dict[str, Any]:
    """Figures of the variations that were requested or have a run."""
    clean = redactor(names=False)
    shown = [one for one in ladder.variations if one.asked or _has_any(runs[one.name])]
    done = {
        one.name: [run for run in runs[one.name] if run.word is RungState.DONE] for one in shown
    }
    every = [run.files for one in shown for run in done[one.name]]
    named = shown_suites(named_suites(every), ladder.words)
    base = [run.files for run in done[BASE]]
    threshold = ladder.threshold
    if threshold is None:
        threshold = threshold_of(base, ladder.by)
    columns = measures(named, by=ladder.by, threshold=threshold)
    found = {
        one.name: {
            run.seed: measure(run.files, named, by=ladder.by, threshold=threshold)
            for run in done[one.name]
        }
        for one in shown
    }
    return {
        "recipe": str(ladder.recipe),
        "folder": str(ladder.folder),
        "seeds": list(ladder.seeds),
        "steps": ladder.steps,
        "by": ladder.by,
        "threshold": threshold,
        "measures": [
            {"key": one.key, "title": one.title, "what": one.what, "form": one.form}
            | {"main": one.main}
            for one in columns
        ],
        "rows": [
            _row(one, runs[one.name], found[one.name], found[BASE], columns, ladder, clean)
            for one in shown
        ],
        "failed": sum(run.word is RungState.FAILED for one in shown for run in runs[one.name]),
        "plots": plots.plots(
            {one.name: [run.files for run in done[one.name]] for one in shown},
            by=ladder.by,
        ),
        "left_out": [one.name for one in ladder.variations if one not in shown],
    }


def _has_any(runs: Sequence[Standing]) -> bool:
    return any(run.word is not RungState.NOT_RUN for run in runs)


def _row(
    variation: Variation,
    runs: Sequence[Standing],
    found: Mapping[int, Measured],
    base: Mapping[int, Measured],
    columns: Sequence[Measure],
    ladder: Ladder,
    clean: Redactor,
) -> dict[str, Any]:
    complete = len(found) == len(runs) and len(base) == len(ladder.seeds)
    remarks = list(unfair(variation.changes, by_part=bool(ladder.by)))
    remarks += [f"seed {seed}: {remark}" for seed, one in found.items() for remark in one.remarks]
    return {
        "name": variation.name,
        "set": clean.words(variation.set),
        "changes": {
            key: [_shown(clean, key, value) for value in both]
            for key, both in variation.changes.items()
        },
        "shares_policy": variation.shares_policy,
        "complete": complete,
        "runs": [_run(run, found.get(run.seed), ladder, clean) for run in runs],
        "means": {one.key: _mean(one, found) for one in columns},
        "differences": {}
        if variation.name == BASE
        else {one.key: _difference(one, found, base, complete=complete) for one in columns},
        "remarks": [clean.text(line) for line in remarks],
    }


def _run(run: Standing, found: Measured | None, ladder: Ladder, clean: Redactor) -> dict[str, Any]:
    return {
        "seed": run.seed,
        "folder": run.folder.relative_to(ladder.folder).as_posix(),
        "word": str(run.word),
        "status": run.status,
        "sentence": clean.text(run.sentence),
        "steps": run.files.steps,
        "values": {} if found is None else {k: _digits(v) for k, v in found.values.items()},
    }


def _mean(column: Measure, found: Mapping[int, Measured]) -> dict[str, Any] | None:
    """Steps to a threshold have a mean where every run came to it: else the slow ones would be
    left out of it. `of`: runs that could have a value."""
    values = _values(column, found)
    over = mean_of(values.values())
    if over is None or (column.key == STEPS and len(values) < len(found)):
        return {"mean": None, "stderr": None, "n": len(values), "of": len(found)}
    return _numbers(over) | {"of": len(found)}


def _difference(
    column: Measure,
    found: Mapping[int, Measured],
    base: Mapping[int, Measured],
    *,
    complete: bool,
) -> dict[str, Any]:
    ours, theirs = _values(column, found), _values(column, base)
    whole = complete
    if column.key == STEPS and any(one.never for one in (*found.values(), *base.values())):
        ours = {}
    elif len(ours) < len(found) or len(theirs) < len(base):
        whole = False
    errors = [
        side[seed].errors[column.key]
        for seed in ours
        if seed in theirs
        for side in (found, base)
        if column.key in side[seed].errors
    ]
    got: Difference = difference(ours, theirs, errors=errors, complete=whole)
    return _numbers(got) | {"against": str(got.against)}


def _values(column: Measure, found: Mapping[int, Measured]) -> dict[int, float]:
    return {seed: one.values[column.key] for seed, one in found.items() if column.key in one.values}


def _numbers(of: Mean | Difference) -> dict[str, Any]:
    return {
        "mean": None if of.mean is None else _digits(of.mean),
        "stderr": None if of.stderr is None else _digits(of.stderr),
        "n": of.n,
    }


def _digits(value: float) -> float:
    """More are not measured."""
    return float(f"{value:.9g}")


def _shown(clean: Redactor, key: str, value: str) -> str:
    if not value:
        return ""
    value = next(iter(clean.table({key: value}).values()))
    return value if len(value) <= LONGEST_VALUE else f"{value[:LONGEST_VALUE]} ..."
