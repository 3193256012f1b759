"""A plot of a report as plain data, which summary.json holds and the page draws. Pure.

A plot is a dict: `key`, `title`, `unit`, `kind` ("lines" or "areas"), `log`, `low`, `high`, `note`
and `lines`, each with `name`, `run` (empty where there is one), `style`, `dots` and the equally
long lists `x`, `y` and, where points have errors, `error`. `band`: errors are an area.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from toolwright.page.charts import SMALL, WIDE, Line, Point, line_chart, stacked_areas

MOST_POINTS = 300
"""Of one line: a chart is not much more pixels wide."""

Plot = dict[str, Any]


def line(
    name: str, style: str, points: Sequence[tuple[float, float]], dots: str, run: str = ""
) -> dict[str, Any]:
    """A line of a plot, of as many points as are seen. dots: see `charts.Line`. run: whose it is,
    where there are several."""
    kept = thin(points)
    return {
        "name": name,
        "run": run,
        "style": style,
        "dots": dots,
        "x": [x for x, _ in kept],
        "y": [short(y) for _, y in kept],
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


def thin(points: Sequence[tuple[float, float]]) -> Sequence[tuple[float, float]]:
    """At most MOST_POINTS of them, evenly chosen, first and last included."""
    if len(points) <= MOST_POINTS:
        return points
    last = len(points) - 1
    return [points[round(i * last / (MOST_POINTS - 1))] for i in range(MOST_POINTS)]


def short(value: float) -> float:
    """Six digits: more are not seen."""
    return float(f"{value:.6g}")


def draw(of: Plot, *, wide: bool) -> str:
    """The plot as SVG."""
    lines = [
        Line(
            name=", ".join(filter(None, (one["name"], one["run"]))),
            style=one["style"],
            dots=one["dots"],
            band=one.get("band", False),
            points=tuple(
                Point(x=x, y=y, error=error)
                for x, y, error in zip(
                    one["x"], one["y"], one.get("error") or [0.0] * len(one["x"]), strict=True
                )
            ),
        )
        for one in of["lines"]
    ]
    size = WIDE if wide else SMALL
    if of["kind"] == "areas":
        return stacked_areas(lines, x_name="step", y_name=of["unit"], high=of["high"], size=size)
    return line_chart(
        lines,
        x_name="step",
        y_name=of["unit"],
        low=of["low"],
        high=of["high"],
        log=of["log"],
        size=size,
    )


def legend(of: Plot) -> list[tuple[str, int]]:
    """(style, number of a line): one for each name, and one for all controls."""
    found: dict[str, tuple[str, int]] = {}
    for number, one in enumerate(of["lines"]):
        control = "control" in one["style"].split()
        key = "" if control else one["name"]
        found.setdefault(key, ("control" if control else one["style"], number))
    return list(found.values())
