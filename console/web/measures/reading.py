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
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from console.errors import RecordBroken
from console.machine import pids
from console.record.course import COURSE, Began, CourseRecord, read_course
from console.record.files import EVALUATIONS, IMITATION, STEPS
from console.record.resolved import RESOLVED
from console.record.run import ENGINE_LOG, RunFiles, read_folder
from console.report.sections import sections
from console.web.measures.about import about
from console.web.measures.summary import summary

WATCHED = (STEPS, IMITATION, EVALUATIONS, COURSE, *RESOLVED)
"""What figures are made of. The engine's log grows all the time, and tells the last sign alone."""
FRESH_S = 120.0
"""Time without growth of its log after which an engine counts as stopped, in seconds."""


class Figures:
    """The figures of one run. Every thread may call it."""

    def __init__(self, folder: Path, name: str) -> None:
        self._folder = folder
        self._name = name
        self._lock = threading.Lock()
        self._told: dict[str, dict[str, Any]] = {}
        self._course_state = ""
        self._last: Began | None = None

    @property
    def state(self) -> str:
        """Another one after every change of the files, and where a process began or ended."""
        files = "/".join(_state_of(self._folder / name) for name in WATCHED)
        found = f"{files}/{self._lives()}/{self._fresh()}"
        return hashlib.sha256(found.encode()).hexdigest()[:16]

    def curves(self) -> dict[str, Any]:
        """{"steps", "sections", "state"}; see `sections`. `state` is that of the files. Raises
        RecordBroken if the folder cannot be read."""
        return self._tell("curves", lambda run: {"steps": run.steps, "sections": sections([run])})

    def about(self) -> dict[str, Any]:
        """See `about`, with the "state". RecordBroken as above."""
        return self._tell("about", lambda run: about(run, fresh=self._fresh()))

    def summary(self) -> dict[str, Any]:
        """See `summary`, with the "state". RecordBroken as above."""
        return self._tell("summary", lambda run: summary(run, fresh=self._fresh()))

    def _lives(self) -> bool | None:
        """Whether the process of the last start lives; None where that cannot be known."""
        written = _state_of(self._folder / COURSE)
        if written != self._course_state:
            try:
                course = read_course(self._folder)
            except RecordBroken:
                course = CourseRecord()
            self._course_state = written
            self._last = course.starts[-1] if course.starts and not course.ended else None
        return None if self._last is None else pids.lives(self._last)

    def _fresh(self) -> bool:
        """Whether the engine's log grew lately."""
        try:
            return time.time() - (self._folder / ENGINE_LOG).stat().st_mtime < FRESH_S
        except OSError:
            return False

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
