"""What a tracker is told: the values of one step, by the names that they have there.

Steps keep the names of learner.jsonl and sft.jsonl. An evaluation's are evaluation/SUITE/NAME.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

Stream = Literal["learner", "sft", "evaluations"]
"""Whose steps they are: a training step, one of the warm-up, an evaluated weight version."""

FILES: Mapping[Stream, str] = {
    "learner": "learner.jsonl",
    "sft": "sft/sft.jsonl",
    "evaluations": "evaluations.jsonl",
}
"""Within the run folder."""

_NOT_MEASURED = frozenset({"step", "lineage", "asked", "temperature"})
_LARGEST_STEP = 2**53


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """Finite values of one step. `part`: the suite of an evaluation, else ""."""

    stream: Stream
    step: int
    values: Mapping[str, float]
    part: str = ""


def point(stream: Stream, row: Mapping[str, Any]) -> Point | None:
    """None for a row without a step or without a number."""
    step = row.get("step")
    if not isinstance(step, int) or isinstance(step, bool) or not 0 <= step < _LARGEST_STEP:
        return None
    part = ""
    if stream == "evaluations":
        suite = row.get("suite")
        if not isinstance(suite, str) or not suite:
            return None
        part, values = suite, _of_evaluation(suite, row)
    else:
        values = {name: value for name, value in _numbers(row) if name != "step"}
    return Point(stream=stream, step=step, values=values, part=part) if values else None


def _of_evaluation(suite: str, row: Mapping[str, Any]) -> dict[str, float]:
    head = f"evaluation/{suite}"
    values = {f"{head}/{name}": v for name, v in _numbers(row) if name not in _NOT_MEASURED}
    for table in ("parts", "stops"):
        inner = row.get(table)
        if isinstance(inner, Mapping):
            values |= {f"{head}/{table}/{name}": value for name, value in _numbers(inner)}
    return values


def _numbers(row: Mapping[str, Any]) -> list[tuple[str, float]]:
    found = []
    for name, value in row.items():
        if isinstance(value, bool) or not isinstance(value, int | float):
            continue
        try:
            number = float(value)
        except OverflowError:
            continue
        if math.isfinite(number):
            found.append((name, number))
    return found
