"""Which curves a page shows, and their points: smoothed, thinned, over steps or hours. Pure."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import accumulate

from console.compare.runs import curve, hours, steps
from console.record.run import RunFiles
from console.report.plot import extremes, thin
from console.verdict import shown_error
from toolwright.page.charts import Line, Point, smooth

MOST_POINTS = 400
"""Maximum points of one drawn curve: a chart is not many more pixels wide."""
MOST_PARTS = 24
"""Parts of the reward that stand behind it; their names are a stranger's."""
MOST_SUITES = 24
INTERVAL = 1.96
"""Standard errors to each side of a mean: 95 % of a normal distribution."""

FIRST = (
    "reward",
    "groups_with_signal",
    "loss",
    "heldout_loss",
    "perplexity",
    "gap_max",
    "gap_mean",
    "entropy",
    "kl_reference",
    "kl_rollout_k3",
    "response_length",
    "total_length",
    "calls",
    "truncated_fraction",
    "staleness_mean",
    "masked",
    "clip_fraction",
    "grad_norm",
    "learning_rate",
    "tokens_per_s",
    "step_s",
    "lease_s",
    "train_s",
    "publish_s",
)
"""What is looked at first; parts of the reward stand behind the reward, all else at the end."""


def names(runs: Sequence[RunFiles]) -> tuple[list[str], list[str]]:
    """(metrics that are looked at first, all others) that a run has."""
    there = {name for run in runs for step in steps(run) for name in step.values}
    parts = sorted(name for name in there if name.startswith("reward/"))[:MOST_PARTS]
    first = [name for name in FIRST if name in there]
    place = 1 if "reward" in first else 0
    first = [*first[:place], *parts, *first[place:]]
    return first, sorted(there.difference(first))


def curves(
    runs: Sequence[RunFiles], name: str, *, window: int, by_hours: bool = False
) -> list[Line]:
    """The runs' curves of one metric, those without it left out: as measured, behind the mean over
    the last `window` steps. The style of run number i is ri."""
    out = []
    for index, run in enumerate(runs):
        points = curve(run, name)
        if by_hours:
            clock = hours(run)
            points = [(clock[int(step)], value) for step, value in points]
        if points:
            values = [y for _, y in points]
            smoothed = smooth(values, window)
            if smoothed != values:
                raw = tuple(Point(x=x, y=y) for x, y in thin(points, MOST_POINTS))
                out.append(Line(name=run.name, style=f"raw r{index}", points=raw, dots="none"))
            told = tuple(
                Point(x=points[at][0], y=smoothed[at], says=_says(*points[at], smoothed[at]))
                for at in extremes(smoothed, MOST_POINTS)
            )
            out.append(Line(name=run.name, style=f"r{index}", points=told))
    return out


def _says(x: float, measured: float, mean: float) -> str:
    also = "" if measured == mean else f", mean {mean:.5g}"
    return f"{x:.5g}: {measured:.5g}{also}"


def suites(runs: Sequence[RunFiles]) -> list[str]:
    """Names of the suites that a run was evaluated on, those of most runs first."""
    counts = Counter(name for run in runs for name in run.record.suites)
    return sorted(counts, key=lambda name: (-counts[name], name))[:MOST_SUITES]


def evaluated(runs: Sequence[RunFiles], suite: str, *, by_hours: bool = False) -> list[Line]:
    """The runs' mean rewards on a suite with their intervals, as measured."""
    out = []
    for index, run in enumerate(runs):
        at = _clock(run) if by_hours else float
        points = [
            Point(x=at(e.step), y=e.reward, error=INTERVAL * (shown_error(e) or 0.0))
            for e in run.record.curve(suite)
        ]
        if points:
            seen = tuple(points[at] for at in extremes([one.y for one in points], MOST_POINTS))
            out.append(Line(name=run.name, style=f"r{index}", points=seen, dots="seen"))
    return out


def _clock(run: RunFiles) -> Callable[[int], float]:
    """Hours at the end of a step; of one without a line, those of the last line before it."""
    lines = sorted(hours(run).items())
    ends = [step for step, _ in lines]
    latest = [0.0, *accumulate((hours for _, hours in lines), max)]
    return lambda step: latest[bisect_right(ends, step)]
