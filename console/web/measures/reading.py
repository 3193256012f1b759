"""A run's figures, read when they are asked for and kept until its files change.

Invariants
- Files are read once for each state that they were in, however many pages ask.
- What is held is what pages get: thinned curves, no steps. A run of many steps costs its memory
  only while it is read.
- A file that is missing or broken costs itself; what could not be read is among the remarks.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from console.record.course import COURSE
from console.record.files import EVALUATIONS, IMITATION, STEPS
from console.record.resolved import RESOLVED
from console.record.run import RunFiles, read_folder
from console.web.measures.about import about
from console.web.measures.curves import curves

WATCHED = (STEPS, IMITATION, EVALUATIONS, COURSE, *RESOLVED)
"""What figures are made of. The engine's log grows all the time, and tells the last sign alone."""


class Figures:
    """Of one run. Any thread may ask."""

    def __init__(self, folder: Path, name: str) -> None:
        self._folder = folder
        self._name = name
        self._lock = threading.Lock()
        self._told: dict[str, dict[str, Any]] = {}

    @property
    def state(self) -> str:
        """Another one after every change of the files."""
        found = "/".join(_state_of(self._folder / name) for name in WATCHED)
        return hashlib.sha256(found.encode()).hexdigest()[:16]

    def curves(self) -> dict[str, Any]:
        """{"steps", "sections"}, see `curves`, and the "state" of which they are. RecordBroken
        where the folder cannot be read."""
        return self._tell("curves", lambda run: {"steps": run.steps, "sections": curves(run)})

    def about(self) -> dict[str, Any]:
        """See `about`, with the "state". RecordBroken as above."""
        return self._tell("about", about)

    def _tell(self, what: str, told: Callable[[RunFiles], dict[str, Any]]) -> dict[str, Any]:
        with self._lock:
            # Before the files: what is written meanwhile is another state.
            state = self.state
            if self._told.get(what, {}).get("state") != state:
                self._told[what] = told(read_folder(self._folder, self._name)) | {"state": state}
            return self._told[what]


def _state_of(file: Path) -> str:
    try:
        found = file.stat()
    except OSError:
        return ""
    return f"{found.st_ino:x}.{found.st_size:x}.{found.st_mtime_ns:x}"
