"""Where a run went on with other settings than before: marks of its curves. Pure."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from typing import Any

from console.record.course import CourseRecord

HASH = "sha256:"
"""Begins the value of a file."""
MOST_SAID = 6
"""Differences that a sentence names."""


def changes(course: CourseRecord) -> list[tuple[int, str]]:
    """(the step after which a start changed settings, what differs), in the order of the starts."""
    found = []
    known = [start for start in course.starts if start.settings]
    for before, now in itertools.pairwise(known):
        if now.step and (differs := differences(before.settings, now.settings)):
            found.append((now.step, listed(differs)))
    return found


def sentences(course: CourseRecord) -> list[str]:
    """A sentence for each change."""
    return [
        f"went on from step {step} with other settings: {text}" for step, text in changes(course)
    ]


def marked(plot: dict[str, Any], course: CourseRecord) -> dict[str, Any]:
    """The plot with a mark at each change; areas have none."""
    marks: list[Mapping[str, Any]] = [
        {"x": step, "text": f"from here on: {text}"} for step, text in changes(course)
    ]
    return plot | {"marks": marks} if marks and plot["kind"] == "lines" else plot


def differences(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """ "KEY OLD -> NEW", and "FILE has changed", in the order of their names."""
    found = []
    for name in sorted({*before, *now}):
        old, new = before.get(name), now.get(name)
        if old == new:
            continue
        if (old or new or "").startswith(HASH):
            how = "is new" if old is None else "is gone" if new is None else "has changed"
            found.append(f"{name} {how}")
        else:
            found.append(f"{name} {old or 'unset'} -> {new or 'unset'}")
    return found


def listed(found: Iterable[str]) -> str:
    """The first differences, and how many more."""
    every = list(found)
    more = f" and {len(every) - MOST_SAID} more" if len(every) > MOST_SAID else ""
    return ", ".join(every[:MOST_SAID]) + more
