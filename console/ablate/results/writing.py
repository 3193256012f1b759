"""Writes ablate.json and ablate.html into the ladder's folder, and tells the table."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from console.ablate.ladder import Ladder
from console.ablate.results.figures import Runs, figures
from console.ablate.results.page import render
from console.ablate.results.table import table
from console.atomic import put
from console.errors import ConsoleError
from console.report.writing import dumps

PAGE, FIGURES = "ablate.html", "ablate.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """lines: the table for a terminal. failed: runs that failed."""

    page: Path
    figures: Path
    lines: tuple[str, ...]
    failed: int


def write(ladder: Ladder, runs: Runs) -> Written:
    """Older files are replaced, each as a whole. ConsoleError."""
    text = dumps(figures(ladder, runs))
    # The page shows what the file holds: what JSON cannot keep is lost before it is shown.
    data: Mapping[str, Any] = json.loads(text)
    page, file = ladder.folder / PAGE, ladder.folder / FIGURES
    try:
        put(file, text)
        put(page, render(data))
    except OSError as error:
        raise ConsoleError(
            f"{error.filename or ladder.folder} cannot be written: {error.strerror}; make room, "
            "then the same command writes them"
        ) from error
    return Written(page=page, figures=file, lines=tuple(table(data)), failed=data["failed"])
