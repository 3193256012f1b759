"""Pictures of studies: charts as SVG files that stand alone. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from bench.studies.charts import ChartSize, Line, Point, line_chart
from toolwright.page import SHARED_STYLE
from toolwright.page.text import text

COLOURS = 8
"""Number of colours of the shared style; later lines begin again, dashed."""
ROW = 20
"""Height of a line of the legend."""
SIZE = ChartSize(name="wide", width=860, height=330, left=66, right=40)
_STYLE = """
svg { background: var(--paper); }
text { font: 12px system-ui, sans-serif; fill: var(--ink); }
.grid { stroke: var(--rule); }
.line, .error { fill: none; stroke-width: 2; }
.again { stroke-dasharray: 7 4; }
.spot { fill-opacity: 0; }
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
        Line(name=name, style=_style(place), points=tuple(_points(values)))
        for place, (name, values) in enumerate(series.items())
    ]
    chart = line_chart(lines, x_name=x_name, y_name=y_name, labels=labels, size=SIZE)
    return _alone(chart, [(line.name, line.style) for line in lines])


def _points(values: Sequence[tuple[float, float | None] | None]) -> list[Point]:
    return [
        Point(x=x, y=found[0], error=found[1] or 0.0)
        for x, found in enumerate(values)
        if found is not None
    ]


def _style(place: int) -> str:
    return f"c{place % COLOURS}" + (" again" if place >= COLOURS else "")


def _alone(chart: str, legend: Sequence[tuple[str, str]]) -> str:
    """The chart with a style sheet and a legend, in a file of its own."""
    colours = "".join(
        f".line.c{n}, .error.c{n} {{ stroke: var(--c{n}); }} .dot.c{n} {{ fill: var(--c{n}); }}\n"
        for n in range(COLOURS)
    )
    style = SHARED_STYLE.read_text(encoding="utf-8") + _STYLE + colours
    rows = "".join(
        f'<line class="line {of}" x1="{SIZE.left}" x2="{SIZE.left + 26}" y1="{y}" y2="{y}"/>'
        f'<text x="{SIZE.left + 34}" y="{y + 4}">{text(name)}</text>'
        for (name, of), y in zip(
            legend, range(SIZE.height + ROW, SIZE.height + 10_000, ROW), strict=False
        )
    )
    height = SIZE.height + ROW * (len(legend) + 1)
    head, _, body = chart.partition(">")
    del head  # its size is that of the chart alone
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {SIZE.width} {height}">'
        f"<style>{style}</style>{body.removesuffix('</svg>')}{rows}</svg>\n"
    )
