"""What a comparison needs of runs: metrics by step and by hours, differences of their recipes.

A run that goes on may have written half a line; one that was killed wrote some steps twice, and
the later line of a step counts. A line that is not what it should be is left out and counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path

from console.errors import RecordBroken
from console.record.files import IMITATION, STEPS
from console.record.resolved import RESOLVED
from console.record.run import RunFiles, check_count, distinct, read_folder
from console.record.types import Step
from console.redact import redactor

METRICS = (STEPS, IMITATION)
"""Where a run's metrics are: those of `learner run`, else those of `learner sft`."""


def read_runs(folders: Sequence[Path]) -> list[RunFiles]:
    """The runs of the folders. Raises RecordBroken for a run without metrics."""
    check_count(folders)
    names = distinct([folder.resolve() for folder in folders])
    return [_read(folder, name) for folder, name in zip(folders, names, strict=True)]


def steps(run: RunFiles) -> tuple[Step, ...]:
    """The steps of `learner run`, else those of `learner sft`."""
    return run.record.steps or run.record.imitation


def hours(run: RunFiles) -> dict[int, float]:
    """Hours until the end of each step: sums of step_s, so time between two lives is out."""
    spent = (one.values.get("step_s", 0.0) + one.values.get("heldout_s", 0.0) for one in steps(run))
    passed = (seconds / 3600 for seconds in accumulate(spent))
    return dict(zip((one.step for one in steps(run)), passed, strict=True))


def differences(runs: Sequence[RunFiles]) -> list[tuple[str, list[str]]]:
    """Keys of the recipes that are not the same in all runs, with each run's value as JSON; ""
    stands for a missing one."""
    clean = redactor(names=False)
    recipes = [clean.table(run.resolved.flat) for run in runs]
    keys = sorted({key for recipe in recipes for key in recipe})
    rows = [(key, [recipe.get(key, "") for recipe in recipes]) for key in keys]
    return [(key, values) for key, values in rows if len(set(values)) > 1]


def remarks(run: RunFiles) -> list[str]:
    """What could not be read, a sentence each."""
    known = run.resolved.flat or run.resolved.remarks
    without = f"{run.folder} has none of {', '.join(RESOLVED)}: its recipe is not compared"
    return [*run.remarks, *([] if known else [without])]


def _read(folder: Path, name: str) -> RunFiles:
    there = [file for place in METRICS if (file := folder / place).is_file()]
    if not there:
        raise RecordBroken(
            f"{folder} has neither {METRICS[0]} nor {METRICS[1]}: name the run.folder of a run "
            "that has made a step"
        )
    run = read_folder(folder, name)
    if not steps(run):
        raise RecordBroken(f"{there[0]} has no line with the metrics of a step")
    return run
