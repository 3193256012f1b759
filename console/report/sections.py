"""The curves of runs, in the sections in which every page shows them. Pure.

Figures of the steps that stand in no plot come last, each by its name in learner.jsonl. Pages lay
the plots of several runs over each other by `key` and the names of their lines.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from console.config import Words
from console.record.changes import marked
from console.record.files import LONGEST_NAME
from console.record.run import RunFiles
from console.report import plots
from console.report.breakdown import STEP
from console.report.measured import measured
from console.report.suites import named_suites, shown_suites
from console.report.tasks import COSINE, TASK, of_tasks
from toolwright.page.plot import Plot, plot, smoothed, thinned
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
    note: str = ""

    def has(self, key: str) -> bool:
        return any(fits(key, one) for one in self.keys)


def fits(key: str, shown: str) -> bool:
    """Whether `shown` is the key of a plot, or its beginning up to a colon."""
    return key.startswith(shown) if shown.endswith(":") else key == shown


SECTIONS = (
    Section(key="reward", title="Reward", keys=("curve", "reward", "signal")),
    Section(key="suites", title="Evaluated suites", keys=("suites", "suite:", "part:", "rate:")),
    Section(key="tasks", title="Tasks", keys=("task:",)),
    Section(
        key="measured",
        title="What the recipe measures",
        keys=("measured:",),
        note="Beside the reward, and no part of it. Names are the recipe's.",
    ),
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


def sections(
    runs: Sequence[RunFiles],
    *,
    most: int = MOST_POINTS,
    window: int | None = None,
    others: bool = True,
) -> list[dict[str, Any]]:
    """[{"key", "title", "note", "plots"}], the sections that have a plot.

    most: maximum points of a line.
    window: each line of training steps has its mean over the last `window` steps as `mean`; None:
    means where points were left out. others: with the figures that stand in no plot.
    """
    means = window is None
    drawn = [thinned(smoothed(one, window), most, means=means) for one in every_plot(runs)]
    most = min(most, POINTS_OF_OTHERS)
    behind = _others(runs) if others else []
    drawn += [thinned(smoothed(one, window), most, means=means) for one in behind]
    if len(runs) == 1:
        drawn = [marked(one, runs[0].course) for one in drawn]
    by_section = [
        {
            "key": section.key,
            "title": section.title,
            "note": section.note,
            "plots": [one for one in drawn if section.has(one["key"])],
        }
        for section in SECTIONS
    ]
    return [one for one in by_section if one["plots"]]


def every_plot(runs: Sequence[RunFiles]) -> list[Plot]:
    """The plots with all their points, without figures that stand in no plot."""
    there = named_suites(runs)
    named = shown_suites(there, words_of(runs))
    titled = {one.name: one for one in named}
    every = [titled.get(one.name, one) for one in there]
    curve = plots.curve(runs, named[0] if named else None, every)
    return [
        *([] if curve is None else [curve]),
        *plots.training(runs),
        *plots.suites(runs, every),
        *plots.beside(runs, every),
        *of_tasks(runs),
        *measured(runs),
    ]


def words_of(runs: Sequence[RunFiles]) -> Words:
    """What the recipe says of a report: the words of the first run that has any."""
    return next((run.resolved.words for run in runs if run.resolved.words != Words()), Words())


def _others(runs: Sequence[RunFiles]) -> list[Plot]:
    """Figures of the steps that stand in no plot; the last says how many are left out."""
    steps = [run.record.steps or run.record.imitation for run in runs]
    names = sorted({n for of in steps for step in of for n in step.values if _is_other(n)})
    found: list[Plot] = []
    for name in names[:MOST_OTHERS]:
        shown = name[:LONGEST_NAME]
        lines = [
            plots.metric_line(run, of, name, 0, shown, plots.run_label(run, runs))
            for run, of in zip(runs, steps, strict=True)
        ]
        if (drawn := plot(f"{OTHER}{shown}", shown, "as logged", lines)) is not None:
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
