"""`run.epochs`: the number of steps in which each task's rows are read that many times.

Rows that are refused count, since the file is not read as tasks here. Groups that dynamic sampling
rejects are read in addition. The files are read when a process needs the number, not with the
recipe: a set may be large, and a run may make it first.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

from toolwright.reading.task_rows.row_files import NotParquet, lines_of, open_parquet
from toolwright.recipe.models.shared_tables import Shared
from toolwright.recipe.models.tasks import SUBMITTED, task_key


class EpochsFault(ValueError):
    """The rows of a task cannot be counted. The message names the key and the fix."""


def fault_of(shared: Shared) -> str:
    """Why the steps cannot follow from `run.epochs`; "" if they may. Opens no file."""
    for name, task in shared.each_task.items():
        if not task.source.endswith((".jsonl", ".parquet")):
            kind = "not a file" if task.source == SUBMITTED else "a function"
            return (
                "run.epochs counts the rows of a .jsonl or .parquet file, and "
                f"{task_key(name)}.source = {task.source!r} is {kind}: set run.steps"
            )
    return ""


def steps_of(shared: Shared, resolve: Callable[[str], Path]) -> int:
    """Steps until each task's rows were drawn `run.epochs` times, each by its share of a step.

    resolve: makes a path of the recipe absolute. Raises EpochsFault for a file that is not there or
    cannot be read.
    """
    epochs, a_step = shared.run.epochs or 0, shared.allotment
    return max(
        math.ceil(epochs * _rows_of(name, task.source, resolve) / a_step[name])
        for name, task in shared.each_task.items()
    )


def _rows_of(name: str, source: str, resolve: Callable[[str], Path]) -> int:
    file = resolve(source)
    try:
        about = file.stat()
        return _count(file, about.st_mtime_ns, about.st_size)
    except (OSError, NotParquet) as error:
        raise EpochsFault(
            f"run.epochs counts the rows of {task_key(name)}.source, and {file} cannot be read "
            f"({error}): make the file first, or set run.steps"
        ) from error


@lru_cache
def _count(file: Path, _changed_ns: int, _size: int) -> int:
    """Number of rows; blank lines do not count."""
    if file.suffix == ".parquet":
        return int(open_parquet(file).metadata.num_rows)
    with file.open("rb") as opened:
        return sum(line is None or bool(line.strip()) for line, _ in lines_of(opened))
