"""What `engine sample` does."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TextIO

from engine.offline.collect.budget import Budget
from engine.offline.enums import Dedupe, ExportLayout
from engine.offline.prices import Prices


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectionOptions:
    """Options of the command line."""

    output: Path
    folder: Path
    """Folder in which the command was given; paths of tasks and criteria are relative to it."""
    tasks: str = ""
    """A source of tasks; "" = task.source."""
    n: int | None = None
    """Number of tasks, from the first on; None = all rows of a file."""
    per_task: int = 1
    """Trajectories of each task."""
    keep: tuple[str, ...] = ()
    """Criteria, each NAME=PATH or PATH."""
    dedupe: Dedupe = Dedupe.ACTIONS
    most_per_task: int | None = None
    """Most trajectories kept of one task; None = all."""
    shard_size: int | None = None
    """Most trajectories of a file; None = one file."""
    export: tuple[ExportLayout, ...] = ()
    budget: Budget = field(default_factory=Budget)
    prices: Prices = field(default_factory=Prices)
    progress: TextIO = field(default_factory=lambda: sys.stderr)
