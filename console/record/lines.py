"""Lines of JSON that a run wrote, or a stranger: read within bounds, the broken ones counted."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from toolwright.reading.files import open_regular

LONGEST_LINE = 1 << 20
MOST_LINES = 1 << 20
LATEST_STEP = 1 << 53
"""Fits into a database and, exactly, into a float."""
LARGEST = 1e300
"""No measurement is larger, and sums of such numbers still are numbers."""


def objects(file: Path) -> Iterator[tuple[int, dict[str, Any] | None]]:
    """(number of the line, its JSON object or None). Skips empty lines.

    A line above LONGEST_LINE comes in pieces, each with None.
    """
    with open_regular(file) as opened:
        for number in range(1, MOST_LINES + 1):
            line = opened.readline(LONGEST_LINE)
            if not line:
                return
            if line.strip():
                yield number, json_object(line)


def number(value: object) -> float | None:
    """The value where it is a number of a measurable size."""
    if not isinstance(value, int | float):
        return None
    try:
        found = float(value)
    except OverflowError:
        return None
    return found if abs(found) <= LARGEST else None


def step_of(values: Mapping[str, Any]) -> int | None:
    """The object's step, where it has one."""
    found = values.get("step")
    if not isinstance(found, int) or isinstance(found, bool) or not 0 <= found <= LATEST_STEP:
        return None
    return found


def remark(file: Path, broken: list[int], what: str) -> list[str]:
    """A sentence where lines are not what they should be."""
    if not broken:
        return []
    lines = "line is" if len(broken) == 1 else "lines are"
    return [f"{file}: {len(broken)} {lines} no {what}, the first is line {broken[0]}"]


def json_object(line: bytes) -> dict[str, Any] | None:
    """The JSON object of a line; None for other text."""
    try:
        values = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return values if isinstance(values, dict) else None
