"""What happened in a run beside its trajectories: publishes, evaluations, the learner's steps.

Taken from the engine's log and the learner's metrics, each from where the last reading ended.
Of all other lines nothing is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from console.record.files import STEPS
from console.record.lines import number, step_of
from console.record.run import ENGINE_LOG
from console.web.index.sources import LinesFile
from console.web.index.types import Batch, Mark

PHASES = ("lease", "train", "export", "publish", "checkpoint")
"""Phases of a learner's step, in order; `checkpoint` is that of the step before."""
LONGEST_NAME = 200
LATEST_STEP = 2**62


class Marks(LinesFile):
    """A JSONL file with marks among its lines."""

    def __init__(self, file: Path, parse: Callable[[Mapping[str, Any]], Mark | None]) -> None:
        super().__init__(file, f"marks of {file.name}")
        self._parse = parse

    def _batch(self, lines: Iterable[tuple[int, Mapping[str, Any] | None]]) -> Batch:
        found = (self._parse(row) for _, row in lines if row is not None)
        return Batch(place=0, marks=tuple(mark for mark in found if mark is not None))


def marks_of(folder: Path) -> list[Marks]:
    """The sources of a run folder."""
    return [Marks(folder / ENGINE_LOG, of_engine), Marks(folder / STEPS, of_learner)]


def of_engine(row: Mapping[str, Any]) -> Mark | None:
    """The mark of a line of the engine's log; None for a line that is not shown."""
    at = _unix(row.get("timestamp"))
    if at is None:
        return None
    if row.get("event") == "published":
        lineage, _, step = str(row.get("version", ""))[:LONGEST_NAME].rpartition(".")
        if not lineage or not step.isdecimal():
            return None
        return Mark(
            kind="published",
            step=min(int(step), LATEST_STEP),
            at=at,
            seconds={"paused": number(row.get("paused_s")) or 0.0},
        )
    suite, version = row.get("suite"), step_of(row)
    if row.get("event") == "evaluated" and isinstance(suite, str) and version is not None:
        took = max(number(row.get("seconds")) or 0.0, 0.0)
        return Mark(
            kind="evaluated",
            step=min(version, LATEST_STEP),
            at=at,
            name=suite[:LONGEST_NAME],
            seconds={"evaluate": took},
        )
    return None


def of_learner(row: Mapping[str, Any]) -> Mark | None:
    """The mark of a line of learner.jsonl: it has seconds, and no time of day."""
    step = step_of(row)
    if step is None:
        return None
    spent = {name: number(row.get(f"{name}_s")) for name in PHASES}
    return Mark(
        kind="learnt",
        step=min(step, LATEST_STEP),
        at=0.0,
        seconds={name: value for name, value in spent.items() if value is not None and value > 0},
    )


def _unix(stamp: object) -> float | None:
    try:
        return datetime.fromisoformat(str(stamp)).timestamp()
    except (ValueError, OverflowError):
        return None
