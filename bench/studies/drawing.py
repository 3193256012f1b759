"""Pictures of studies: charts as SVG files that stand alone. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from bench.studies.charts import HEIGHT, LEFT, WIDTH, Line, Point, line_chart
from toolwright.page import SHARED_STYLE
from toolwright.page.plot import COLOURS, colour
from toolwright.page.text import text

ROW = 20
"""Height of a line of the legend."""
_STYLE = """
svg { background: var(--paper); }
text { font: 12px system-ui, sans-serif; fill: var(--ink); }
.grid { stroke: var(--rule); }
.line, .error { fill: none; stroke-width: 2; }
.dash1 { stroke-dasharray: 7 4; }
.dash2 { stroke-dasharray: 2 4; }
"""


def lines_over(
    labels: Sequence[str],
    series: Mapping[str, Sequence[tuple[float, float | None] | None]],
    *,
    x_name: str,
    y_name: str,
) -> str:
    """One line a series over the labels. series: mean and standard error of each label."""
    lines = [
        Line(name=name, style=colour(place), points=tuple(_points(labels, values)))
        for place, (name, values) in enumerate(series.items())
    ]
    chart = line_chart(lines, x_name=x_name, y_name=y_name, labels=labels)
    return _alone(chart, [(line.name, line.style) for line in lines])


def _points(
    labels: Sequence[str], values: Sequence[tuple[float, float | None] | None]
) -> list[Point]:
    return [
        Point(x=x, label=label, y=found[0], error=found[1] or 0.0)
        for x, (label, found) in enumerate(zip(labels, values, strict=True))
        if found is not None
    ]


def _alone(chart: str, legend: Sequence[tuple[str, str]]) -> str:
    """The chart with a style sheet and a legend, in a file of its own."""
    colours = "".join(
        f".line.c{n}, .error.c{n} {{ stroke: var(--c{n}); }} .dot.c{n} {{ fill: var(--c{n}); }}\n"
        for n in range(COLOURS)
    )
    style = SHARED_STYLE.read_text(encoding="utf-8") + _STYLE + colours
    places = range(HEIGHT + ROW, HEIGHT + ROW * (len(legend) + 1), ROW)
    rows = "".join(
        f'<line class="line {of}" x1="{LEFT}" x2="{LEFT + 26}" y1="{y}" y2="{y}"/>'
        f'<text x="{LEFT + 34}" y="{y + 4}">{text(name)}</text>'
        for (name, of), y in zip(legend, places, strict=True)
    )
    height = HEIGHT + ROW * (len(legend) + 1)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}">'
        f"<style>{style}</style>\n{chart}\n{rows}</svg>\n"
    )
