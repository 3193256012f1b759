"""The plots of what a recipe measures beside its reward: `measured/NAME` of learner.jsonl. Pure.

Names are a stranger's: of a reward function or a group hook. NAME and every NAME_if_CONDITION are
one plot, since both count the same thing, the second over fewer trajectories; every other figure
has a plot of its own, for nothing is known of its unit. NAME_deviation is an area around NAME.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from console.record.run import RunFiles
from console.report.plots import metric_line, run_label
from toolwright.page.plot import Plot, plot
from toolwright.reward_figures import DEVIATION, METRIC

MOST_FIGURES = 32
"""As many as the learner writes of a recipe; a file may hold more."""
CONDITION = "_if_"
UNIT = "mean over trajectories"
UNIT_OF_LISTS = "mean and standard deviation"


def measured(runs: Sequence[RunFiles]) -> list[Plot]:
    """A plot for each figure of any run, in the order of their names."""
    names = figures_of(runs)
    groups = related(names[:MOST_FIGURES])
    found = [drawn for group in groups if (drawn := _drawn(runs, group)) is not None]
    if found and len(names) > MOST_FIGURES:
        found[-1]["note"] = f"{len(names) - MOST_FIGURES} more figures are in learner.jsonl."
    return found


def figures_of(runs: Sequence[RunFiles]) -> list[str]:
    """Names of the figures, in any step of any run: one that needs two queries, say, is not in the
    steps without two. The deviation of another figure is not a figure of its own."""
    found = {
        name.removeprefix(METRIC)
        for run in runs
        for step in run.record.steps
        for name in step.values
        if name.startswith(METRIC) and name != METRIC
    }
    return sorted(found - {name + DEVIATION for name in found})


def related(names: Sequence[str]) -> list[list[str]]:
    """Figures that share a plot. names: sorted, so that NAME comes before NAME_if_CONDITION, which
    stands alone where there is no NAME."""
    groups: dict[str, list[str]] = {}
    for name in names:
        whole = name.partition(CONDITION)[0]
        groups.setdefault(whole if whole in groups else name, []).append(name)
    return list(groups.values())


def _drawn(runs: Sequence[RunFiles], names: Sequence[str]) -> Plot | None:
    lines = [
        _line(run, number, name, run_label(run, runs))
        for number, name in enumerate(names)
        for run in runs
    ]
    ends = (
        y - error
        for one in lines
        for y, error in zip(one["y"], one.get("error") or [0.0] * len(one["y"]), strict=True)
    )
    low = 0.0 if all(y >= 0 for y in ends) else None
    unit = UNIT_OF_LISTS if any("band" in one for one in lines) else UNIT
    return plot(f"measured:{names[0]}", names[0], unit, lines, low=low)


def _line(run: RunFiles, number: int, name: str, whose: str) -> dict[str, Any]:
    """The line of a figure, with its deviation as an area if the run has one."""
    drawn = metric_line(run, run.record.steps, METRIC + name, number, name, whose)
    spread = {float(s.step): s.values.get(METRIC + name + DEVIATION) for s in run.record.steps}
    errors = [spread[x] for x in drawn["x"]]
    if any(errors):
        drawn |= {"error": [error or 0.0 for error in errors], "band": True}
    return drawn
