"""Changes between two reports, and whether they are more than noise. Pure, except `read_report`.

Two runs never meet the same machine. So a row is judged by its ratio to the floor, which was
measured beside it round by round. The exact rank-sum test (Wilcoxon 1945) compares the ratios of
both runs' rounds. It assumes no shape of the noise, and one wild round changes little. A verdict is
`better` or `worse` if the median moved by more than 3 %, and noise alone does as much in fewer than
2 of 100 cases. Fewer than 4 rounds give no verdict.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import combinations
from pathlib import Path
from statistics import median
from typing import Any

from bench.errors import UsageError
from bench.tools.reading.rows import load_name

CHANCE = 0.02
LEAST_CHANGE = 0.03
LEAST_ROUNDS, MOST_ROUNDS = 4, 10
"""Fewer rounds give no verdict. More have too many partitions to try each."""

FIGURES = {"requests_per_s": True, "p50_ms": False, "cpu_ms_per_call": False}
"""Whether more is better, by figure."""


class Verdict(StrEnum):
    """Verdict on one figure of one row."""

    BETTER = "better"
    WORSE = "worse"
    SAME = "within noise"
    UNKNOWN = "too few rounds"


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """Change of one figure. old, new: medians of the rounds."""

    row: str
    figure: str
    old: float
    new: float
    relative: float
    """Change of the ratio to the floor; 0.1 = 10 % more."""
    chance: float
    """Probability that noise alone separates the rounds as far."""
    verdict: Verdict


def read_report(file: Path) -> dict[str, Any]:
    """A report of `bench tools`. Raises UsageError for any other file."""
    try:
        report = json.loads(file.read_text(encoding="utf-8"))
        for row in report["rows"]:
            _key(row)
            row["rounds"][0]["floor"]
    except OSError as error:
        raise UsageError(f"--compare {file}: {error.strerror}") from error
    except (ValueError, KeyError, TypeError, IndexError) as error:
        raise UsageError(
            f"--compare {file}: this is no report of `bench tools --json` ({error!r})"
        ) from error
    found: dict[str, Any] = report
    return found


def compare(old: dict[str, Any], new: dict[str, Any]) -> Sequence[Change]:
    """Changes of the rows that both reports have, in the order of the new one."""
    before = {_key(row): row for row in old["rows"]}
    return [
        change
        for row in new["rows"]
        if _key(row) in before
        for figure in FIGURES
        if (change := _change(figure, before[_key(row)], row)) is not None
    ]


def verdicts(changes: Sequence[Change]) -> Iterable[str]:
    """One line a figure."""
    for one in changes:
        yield (
            f"{one.row:32}{one.figure:18}{one.old:>10.3f} -> {one.new:<10.3f}"
            f"{one.relative:+7.1%} beside the floor, by chance {one.chance:.0%}: {one.verdict}"
        )


def _key(row: dict[str, Any]) -> str:
    name = load_name(row["workload"], row["mode"], row["rate"])
    return f"{name}, {row['concurrency']}"


def _change(figure: str, old: dict[str, Any], new: dict[str, Any]) -> Change | None:
    before, after = _ratios(old, figure), _ratios(new, figure)
    if not before or not after:
        return None
    relative = median(after) / median(before) - 1
    chance = rank_sum(before, after)
    return Change(
        row=_key(new),
        figure=figure,
        old=_median(old, figure),
        new=_median(new, figure),
        relative=relative,
        chance=chance,
        verdict=Verdict.UNKNOWN
        if min(len(before), len(after)) < LEAST_ROUNDS
        else judge(relative, chance, more_is_better=FIGURES[figure]),
    )


def judge(relative: float, chance: float, *, more_is_better: bool) -> Verdict:
    """The verdict on a figure with enough rounds."""
    if abs(relative) <= LEAST_CHANGE or chance > CHANCE:
        return Verdict.SAME
    return Verdict.BETTER if (relative > 0) is more_is_better else Verdict.WORSE


def rank_sum(one: Sequence[float], other: Sequence[float]) -> float:
    """Chance of rank sums that differ at least as much: the share of all partitions into two groups
    of these sizes. Equal values share their ranks."""
    values = [*one, *other]
    # Twice the average rank, so that all sums are whole.
    ranks = [sum(v < value for v in values) + sum(v <= value for v in values) for value in values]
    middle = len(one) * len(values)
    distance = abs(sum(ranks[: len(one)]) - middle)
    ways = [abs(sum(group) - middle) >= distance for group in combinations(ranks, len(one))]
    return sum(ways) / len(ways)


def _ratios(row: dict[str, Any], figure: str) -> list[float]:
    """Ratio of service to floor in each round that has both."""
    rounds = row["rounds"][:MOST_ROUNDS]
    pairs = [(one["ours"][figure], one["floor"][figure]) for one in rounds]
    return [ours / floor for ours, floor in pairs if ours and floor]


def _median(row: dict[str, Any], figure: str) -> float:
    return float(median(one["ours"][figure] for one in row["rounds"]))
