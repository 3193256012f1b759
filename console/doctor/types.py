"""The words of the doctor: a finding, a check, and what is examined."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from pathlib import Path

from console.asked.setup import Setup


class Level(StrEnum):
    """How bad it is, the mildest first."""

    OK = "ok"
    """In order, or a fact."""
    WARNING = "warning"
    """A run starts and may be slow, or fail later; or something that not every run needs."""
    UNKNOWN = "unknown"
    """A check did not end, so whether a run starts is not known."""
    PROBLEM = "problem"
    """A run does not start, or goes wrong."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A sentence of one subject. fix: a command if one exists; "" without a fix."""

    level: Level
    subject: str
    sentence: str
    fix: str = ""


ok = partial(Finding, Level.OK)
warning = partial(Finding, Level.WARNING)
unknown = partial(Finding, Level.UNKNOWN)
problem = partial(Finding, Level.PROBLEM)


@dataclass(frozen=True, slots=True, kw_only=True)
class Patient:
    """What is examined. setup: None without a recipe."""

    environment: Mapping[str, str]
    setup: Setup | None = None

    @property
    def folder(self) -> Path:
        """Where a run would write: the first folder at or above run.folder that exists."""
        run = (self.setup.run if self.setup else Path.cwd()).absolute()
        return next(path for path in (run, *run.parents) if path.is_dir())


Findings = Iterable[Finding]
Check = Callable[[Patient], Findings]
"""Looks at one subject, in a thread of its own."""
