"""A plot of a report as plain data, which summary.json holds and the page draws. Pure.

A plot is a dict: `key`, `title`, `unit`, `kind` ("lines" or "areas"), `log`, `low`, `high`, `note`
and `lines`, each with `name`, `run` (empty where there is one), `style`, `dots` and the equally
long lists `x`, `y` and, where points have errors, `error`. `band`: errors are an area. `suite`: of
an evaluation, its name.
"""

from __future__ import annotations

import itertools
import math
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from statistics import fmean
from typing import Any

COLOURS = 8
"""Styles c0, c1, ... of the pages; a colour comes again with another dash."""
MOST_POINTS = 300
"""Maximum points of one line: a chart is not many more pixels wide."""

Plot = dict[str, Any]


def colour(number: int) -> str:
    """The style of a line by its number."""
    dash = number // COLOURS % 3
    return f"c{number % COLOURS}" + (f" dash{dash}" if dash else "")


def line(
    name: str, style: str, points: Sequence[tuple[float, float]], dots: str, run: str = ""
) -> dict[str, Any]:
    """A line of a plot, with all its points: see `thinned`. dots: "seen" with errors, on
    "hover", or "none". run: whose it
    is, where there are several."""
    return {
        "name": name,
        "run": run,
        "style": style,
        "dots": dots,
        "x": [x for x, _ in points],
        "y": [y for _, y in points],
    }


def plot(
    key: str,
    title: str,
    unit: str,
    lines: Iterable[dict[str, Any]],
    *,
    kind: str = "lines",
    note: str = "",
    log: bool = False,
    low: float | None = None,
    high: float | None = None,
) -> Plot | None:
    """None where no line has a point."""
    drawn = [one for one in lines if one["x"] and (not log or max(one["y"]) > 0)]
    if not drawn:
        return None
    return {
        "key": key,
        "title": title,
        "unit": unit,
        "kind": kind,
        "note": note,
        "log": log,
        "low": low,
        "high": high,
        "lines": drawn,
    }


def smooth(values: Sequence[float], window: int) -> list[float]:
    """Mean over the last `window` values at each place, fewer at the beginning."""
    return [
        math.fsum(v / min(end, window) for v in values[max(0, end - window) : end])
        for end in range(1, len(values) + 1)
    ]


def smoothed(of: Plot, window: int | None) -> Plot:
    """The plot with each line's `mean` over the last `window` points; evaluations, areas and a
    window of 1 or None stay as measured."""
    if of["kind"] == "areas" or (window or 1) == 1:
        return of
    lines = [
        one if one["dots"] == "seen" else one | {"mean": smooth(one["y"], window or 1)}
        for one in of["lines"]
    ]
    return of | {"lines": lines}


def thinned(of: Plot, most: int = MOST_POINTS, *, means: bool = False) -> Plot:
    """The plot with at most so many points a line, of as many digits as are seen. Areas lie on each
    other, so all of theirs have the same steps: those of the first. means: a line that lost points
    has `mean` beside `y`, at each point that of all values of its stretch."""
    areas = of["kind"] == "areas"
    by = of["lines"][0]
    steps = {by["x"][at] for at in extremes(by["y"], most)} if areas else set()
    lines = []
    for one in of["lines"]:
        kept = (
            [at for at, x in enumerate(one["x"]) if x in steps]
            if areas
            else extremes(one["y"], most)
        )
        seen = {
            name: [short(one[name][at]) for at in kept]
            for name in ("y", "error", "mean")
            if name in one
        }
        if means and not areas and len(kept) < len(one["y"]):
            seen["mean"] = _means(one["y"], kept, most)
        lines.append(one | {"x": [one["x"][at] for at in kept]} | seen)
    return of | {"lines": lines}


def thin(
    points: Sequence[tuple[float, float]], most: int = MOST_POINTS
) -> Sequence[tuple[float, float]]:
    """At most so many points, as `extremes` chooses them."""
    return [points[place] for place in extremes([y for _, y in points], most)]


def extremes(values: Sequence[float], most: int) -> Sequence[int]:
    """Places of at most so many values, in order: the first, the last, and of every equal stretch
    between them the least and the largest, so that no spike is lost. most: 4 or more."""
    last = len(values) - 1
    if last < most:
        return range(len(values))
    kept = [0, last]
    for stretch in _stretches(len(values), most):
        kept += {min(stretch, key=values.__getitem__), max(stretch, key=values.__getitem__)}
    return sorted(kept)


def _stretches(count: int, most: int) -> list[range]:
    """Ranges of the points between the first and the last, each for two points."""
    stretches = (most - 2) // 2
    edges = [1 + (count - 2) * number // stretches for number in range(stretches + 1)]
    return [range(begin, end) for begin, end in itertools.pairwise(edges)]


def _means(values: Sequence[float], kept: Sequence[int], most: int) -> list[float]:
    """Means around each kept point; the first and last points join their neighbours' ranges."""
    stretches = _stretches(len(values), most)
    ends = [stretch.stop for stretch in stretches]
    found = [short(fmean(values[place] for place in stretch)) for stretch in stretches]
    return [found[min(bisect_right(ends, place), len(found) - 1)] for place in kept]


def short(value: float) -> float:
    """Six digits: more are not seen."""
    return float(f"{value:.6g}")
