"""Which curves a page shows, and their points: smoothed, thinned, over steps or hours. Pure."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate

from learner.compare.runs import Run

MOST_POINTS = 400
"""Of one drawn curve: a chart is not much more pixels wide."""
MOST_PARTS = 24
"""Parts of the reward that stand behind it; their names are a stranger's."""
MOST_SUITES = 24

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """One run's curve: `raw` as measured, `smooth` the mean over the last points.

    bars: (x, low, high) of intervals around points. marked: the points are few, and each is seen.
    """

    run: int
    raw: tuple[tuple[float, float], ...]
    smooth: tuple[tuple[float, float], ...]
    bars: tuple[tuple[float, float, float], ...] = ()
    marked: bool = False


def names(runs: Sequence[Run]) -> tuple[list[str], list[str]]:
    """(metrics that are looked at first, all others) that a run has."""
    there = {name for run in runs for line in run.metrics.values() for name in line}
    parts = sorted(name for name in there if name.startswith("reward/"))[:MOST_PARTS]
    first = [name for name in FIRST if name in there]
    place = 1 if "reward" in first else 0
    first = [*first[:place], *parts, *first[place:]]
    return first, sorted(there.difference(first))


def curves(runs: Sequence[Run], name: str, *, window: int, hours: bool = False) -> list[Curve]:
    """The runs' curves of one metric, those without it left out."""
    out = []
    for index, run in enumerate(runs):
        points = run.curve(name)
        if hours:
            clock = run.hours()
            points = [(clock[int(step)], value) for step, value in points]
        if points:
            smoothed = smooth([y for _, y in points], window)
            means = [(x, y) for (x, _), y in zip(points, smoothed, strict=True)]
            out.append(Curve(run=index, raw=thin(points), smooth=thin(means)))
    return out


def suites(runs: Sequence[Run]) -> list[str]:
    """Names of the suites that a run was evaluated on, those of most runs first."""
    counts = Counter(name for run in runs for name in run.evaluations)
    return sorted(counts, key=lambda name: (-counts[name], name))[:MOST_SUITES]


def evaluated(runs: Sequence[Run], suite: str, *, hours: bool = False) -> list[Curve]:
    """The runs' mean rewards on a suite with their intervals, as measured."""
    out = []
    for index, run in enumerate(runs):
        at = _clock(run) if hours else float
        found = [(at(m.step), m) for m in run.evaluations.get(suite, ())]
        points = thin([(float(x), m.reward) for x, m in found])
        bars = [(x, m.reward - m.half, m.reward + m.half) for x, m in found if m.half is not None]
        if points:
            kept = {x for x, _ in points}
            out.append(
                Curve(
                    run=index,
                    raw=points,
                    smooth=points,
                    bars=tuple(bar for bar in bars if bar[0] in kept),
                    marked=True,
                )
            )
    return out


def _clock(run: Run) -> Callable[[int], float]:
    """Hours at the end of a step; of one without a line, those of the last line before it."""
    lines = sorted(run.hours().items())
    steps = [step for step, _ in lines]
    latest = [0.0, *accumulate((hours for _, hours in lines), max)]
    return lambda step: latest[bisect_right(steps, step)]


def smooth(values: Sequence[float], window: int) -> list[float]:
    """Mean over the last `window` values at each place, fewer at the beginning."""
    return [
        math.fsum(v / min(end, window) for v in values[max(0, end - window) : end])
        for end in range(1, len(values) + 1)
    ]


def thin(points: Sequence[tuple[float, float]]) -> tuple[tuple[float, float], ...]:
    """At most MOST_POINTS of them, evenly chosen, first and last included."""
    if len(points) <= MOST_POINTS:
        return tuple(points)
    last = len(points) - 1
    return tuple(points[round(i * last / (MOST_POINTS - 1))] for i in range(MOST_POINTS))
