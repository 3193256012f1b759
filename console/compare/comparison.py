"""What a comparison shows: curves of each run, evaluations, differences of the recipes. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

from console.compare.runs import differences, hours, remarks, steps
from console.record.run import RunFiles
from console.report.figures import change_of
from console.report.plots import IMITATION
from console.report.sections import sections
from toolwright.page.plot import MOST_POINTS, short

MOST_SUITES = 24
POINTS_OF_ALL, FEWEST_POINTS = 4 * MOST_POINTS, 50
"""Maximum points of a plot over all runs; a line keeps FEWEST_POINTS however many they are."""
LONGEST_VALUE = 300
"""Letters of a recipe's value that the table shows."""
NOT_LAID = ("curve", IMITATION.key)
"""Plots of one run alone: the learning curve, and the warm-up of a run that went on to learn."""


def comparison(runs: Sequence[RunFiles], *, window: int) -> dict[str, Any]:
    """The figures of the page. window: training steps that a bold line is a mean of."""
    counts = Counter(name for run in runs for name in run.record.suites)
    most = max(FEWEST_POINTS, min(MOST_POINTS, POINTS_OF_ALL // len(runs)))
    suites = sorted(counts, key=lambda name: (-counts[name], name))[:MOST_SUITES]
    return {
        "window": window,
        "runs": [_run(run, window, most) for run in runs],
        "suites": [
            {
                "name": name,
                "sampling": _sampling(runs, name),
                "changes": [change_of(run.record.curve(name)) for run in runs],
            }
            for name in suites
        ],
        "differences": [[key, *map(_cut, values)] for key, values in differences(runs)],
        "remarks": [line for run in runs for line in remarks(run)],
    }


def _run(run: RunFiles, window: int, most: int) -> dict[str, Any]:
    """most: maximum points of a line. clock: hours of training at the end of each step, which never
    fall."""
    told = sections([run], most=most, window=window)
    left = NOT_LAID if run.record.steps else NOT_LAID[:1]
    for section in told:
        section["plots"] = [plot for plot in section["plots"] if plot["key"] not in left]
    clock = sorted(hours(run).items())
    spent = accumulate((passed for _, passed in clock), max)
    return {
        "name": run.name,
        "steps": len(steps(run)),
        "clock": {"steps": [step for step, _ in clock], "hours": [short(one) for one in spent]},
        "sections": [one for one in told if one["plots"]],
    }


def _sampling(runs: Sequence[RunFiles], suite: str) -> str:
    """How the suite's answers were sampled, in each way that occurs."""
    heats = dict.fromkeys(e.temperature for run in runs for e in run.record.curve(suite))
    return ", ".join(
        f"temperature {heat:g}" if heat else "greedy" for heat in heats if heat is not None
    )


def _cut(value: str) -> str:
    return value if len(value) <= LONGEST_VALUE else f"{value[:LONGEST_VALUE]} ..."
