"""The words of the doctor: a finding, a check, and what is looked at."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from console.config import ConsoleTable
from toolwright.recipe import Recipe


class Level(StrEnum):
    """How bad it is."""

    OK = "ok"
    """In order, or a fact."""
    WARNING = "warning"
    """A run starts and may be slow, or fail later; or something that not every run needs."""
    UNKNOWN = "unknown"
    """A check did not end, so whether a run starts is not known."""
    PROBLEM = "problem"
    """A run does not start, or goes wrong."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A sentence of one subject. mend: the fix, a command if one exists."""

    subject: str
    level: Level
    sentence: str
    mend: str = ""


def ok(subject: str, sentence: str) -> Finding:
    return Finding(subject=subject, level=Level.OK, sentence=sentence)


def warning(subject: str, sentence: str, mend: str = "") -> Finding:
    return Finding(subject=subject, level=Level.WARNING, sentence=sentence, mend=mend)


def unknown(subject: str, sentence: str, mend: str = "") -> Finding:
    return Finding(subject=subject, level=Level.UNKNOWN, sentence=sentence, mend=mend)


def problem(subject: str, sentence: str, mend: str = "") -> Finding:
    return Finding(subject=subject, level=Level.PROBLEM, sentence=sentence, mend=mend)


@dataclass(frozen=True, slots=True, kw_only=True)
class Patient:
    """What is looked at. recipe: None without one. folder: where a run would write."""

    folder: Path
    environment: Mapping[str, str]
    recipe: Recipe | None = None
    overrides: Sequence[str] = ()

    @property
    def console(self) -> ConsoleTable:
        """The recipe's table [console]. RecipeError."""
        if self.recipe is None:
            return ConsoleTable()
        return self.recipe.table("console", ConsoleTable)


Findings = Sequence[Finding]


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One subject: `look` is run in a thread of its own, or `wait` is awaited. seconds: it is given
    up after them. needs: the extra whose packages it imports."""

    subject: str
    look: Callable[[Patient], Findings] | None = None
    wait: Callable[[Patient], Awaitable[Findings]] | None = None
    seconds: float = 10.0
    needs: str = "console"
