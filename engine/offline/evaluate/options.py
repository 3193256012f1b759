"""What `engine eval` does."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TextIO

from engine.offline.evaluate.questions import Subset
from engine.offline.evaluate.results.figures import ResultOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationOptions:
    """Options of the command line."""

    task: str = ""
    """Name of the task, in a recipe with several."""
    output: Path | None = None
    """Folder; None = "eval" in the run's folder, "eval-TASK" in a recipe with several tasks."""
    suites: Sequence[str] = ()
    """Names of suites; empty = all."""
    subset: Subset | None = None
    samples: int = 1
    """Trajectories of each question."""
    temperature: float | None = None
    """None = the temperature of each suite."""
    concurrency: int | None = None
    """Rows in flight; None = engine.evaluation.max_concurrent."""
    fresh: bool = False
    """Sets an existing evaluation aside."""
    results: ResultOptions = field(default_factory=ResultOptions)
    progress: TextIO = field(default_factory=lambda: sys.stderr)
