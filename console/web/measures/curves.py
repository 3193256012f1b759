"""The curves of one run, in the sections in which the page shows them. Pure.

They are the plots of the report: the same names, groups and errors, with more points. What no plot
of the report takes stands behind them, each figure by the name that it has in learner.jsonl. Pages
lay the plots of several runs over each other by `key` and the names of their lines.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from console.record.changes import marked
from console.record.files import LONGEST_NAME
from console.record.run import RunFiles
from console.report import plots
from console.report.breakdown import STEP
from console.report.measured import measured
from console.report.plot import Plot, plot, thinned
from console.report.suites import named_suites, shown_suites
from console.report.tasks import COSINE, TASK, of_tasks
from toolwright.reward_figures import METRIC

MOST_POINTS = 1000
"""Maximum number of points of a line: a screen has no more pixels beside each other."""
MOST_OTHERS = 150
"""Figures that no plot of the report takes: their names may be a stranger's."""
POINTS_OF_OTHERS = 300
OTHER = "other:"
OF_A_SHARE = ("trajectories", "groups", "step_s")
"""Figures that plots divide by."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """Plots that stand together. keys: of plots; one that ends in a colon, all that begin so."""

    key: str
    title: str
    keys: tuple[str, ...]

    def has(self, key: str) -> bool:
        return any(key.startswith(one) if one.endswith(":") else key == one for one in self.keys)


SECTIONS = (
    Section(key="reward", title="Reward", keys=("curve", "reward", "signal")),
    Section(key="suites", title="Evaluated suites", keys=("suites", "suite:", "part:", "rate:")),
    Section(key="tasks", title="Tasks", keys=("task:",)),
    Section(key="measured", title="What the recipe measures", keys=("measured:",)),
    Section(
        key="policy",
        title="Policy",
        keys=("entropy", "kl", "gap", "gradient", "clip", "rate"),
    ),
    Section(
        key="trajectories",
        title="Trajectories",
        keys=("length", "calls", "failed", "stops", "masked", "reasons"),
    ),
    Section(
        key="speed",
        title="Speed and age",
        keys=("speed", "seconds", "times", "latency", "staleness"),
    ),
    Section(key="warm-up", title="Warm-up", keys=(plots.IMITATION.key,)),
    Section(key="others", title="All other figures", keys=(OTHER,)),
)


def curves(run: RunFiles) -> list[dict[str, Any]]:
    """[{"key", "title", "plots"}], the sections that have a plot, each line thinned."""
    runs = [run]
    there = named_suites(runs)
    named = shown_suites(there, run.resolved.words)
    titled = {one.name: one for one in named}
    every = [titled.get(one.name, one) for one in there]
    curve = plots.curve(runs, named[0] if named else None, every)
    found = [
        *([] if curve is None else [curve]),
        *plots.training(runs),
        *plots.suites(runs, every),
        *plots.beside(runs, every),
        *of_tasks(runs),
        *measured(runs),
    ]
    drawn = [thinned(one, MOST_POINTS, means=True) for one in found]
    drawn += [thinned(one, POINTS_OF_OTHERS, means=True) for one in _others(run)]
    sections = [
        {
            "key": section.key,
            "title": section.title,
            "plots": [marked(one, run.course) for one in drawn if section.has(one["key"])],
        }
        for section in SECTIONS
    ]
    return [one for one in sections if one["plots"]]


def _others(run: RunFiles) -> list[Plot]:
    """Figures of the steps that stand in no plot; the last says how many are left out."""
    names = sorted({name for step in run.record.steps for name in step.values if _is_other(name)})
    found: list[Plot] = []
    for name in names[:MOST_OTHERS]:
        shown = name[:LONGEST_NAME]
        line = plots.metric_line(run, run.record.steps, name, 0, shown, "")
        if (drawn := plot(f"{OTHER}{shown}", shown, "as logged", [line])) is not None:
            found.append(drawn)
    if found and len(names) > MOST_OTHERS:
        found[-1]["note"] = f"{len(names) - MOST_OTHERS} more figures are in learner.jsonl."
    return found


def _is_other(name: str) -> bool:
    return name not in _DRAWN and not name.startswith(_DRAWN_SO)


def _plain_names(shown: Sequence[plots.Metrics]) -> set[str]:
    return {value for one in shown for value in one.values.values() if isinstance(value, str)}


_DRAWN = {*_plain_names(plots.METRICS), *STEP, *OF_A_SHARE, "reward", "masked"}
_DRAWN_SO = ("reward/", "stop/", TASK, COSINE, METRIC)
