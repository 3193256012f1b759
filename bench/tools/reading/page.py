"""The report as one HTML page with plots, which needs no other file and no network."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from markupsafe import Markup

from bench.measuring.report import Report
from bench.tools.load import verltool
from bench.tools.reading.compare import Change
from bench.tools.reading.rows import ToolRow, levels
from bench.tools.reading.terminal import remarks
from toolwright.page import charts, pages
from toolwright.page.charts import Line, Point

HEADROOM = 1.08  # of a plot, above its highest point


def render(report: Report[ToolRow], changes: Sequence[Change], *, published: bool) -> str:
    """The whole page. published: whether figures of others stand beside ours."""
    return pages.render(
        "bench",
        "tools/reading/page.html.jinja",
        {
            "rows": report.rows,
            "sections": list(_sections(report.rows)),
            "remarks": list(remarks(report.rows)),
            "published": verltool.PUBLISHED if published else (),
            "said": verltool.said,
            "changes": changes,
            "facts": [
                *report.machine.items(),
                ("isolation", ", ".join(levels(report.rows)) or "-"),
                *report.versions.items(),
            ],
        },
    )


def _sections(rows: Sequence[ToolRow]) -> Iterable[dict[str, Any]]:
    """One workload and mode each, with its curves over the sweep."""
    for name in dict.fromkeys(row.name for row in rows):
        chosen = [row for row in rows if row.name == name]
        yield {
            "title": name,
            "charts": [
                {"title": "Calls a second", "svg": _chart(chosen, "calls/s", _RATE)},
                {"title": "Latency, p50 and p99", "svg": _chart(chosen, "ms", _LATENCY)},
                {"title": "CPU time of a call, all processes", "svg": _chart(chosen, "ms", _CPU)},
            ],
        }


_Curve = tuple[str, str, Callable[[ToolRow], float | None]]
_RATE: tuple[_Curve, ...] = (
    ("floor", "baseline", lambda row: row.floor.requests_per_s),
    ("service", "sampled", lambda row: row.ours.requests_per_s),
)
_LATENCY: tuple[_Curve, ...] = (
    ("floor, p99", "baseline", lambda row: row.floor.latency.p99),
    ("floor, p50", "control", lambda row: row.floor.latency.p50),
    ("service, p99", "greedy", lambda row: row.ours.latency.p99),
    ("service, p50", "sampled", lambda row: row.ours.latency.p50),
)
_CPU: tuple[_Curve, ...] = (
    ("floor", "baseline", lambda row: row.floor.cpu_ms),
    ("service", "sampled", lambda row: row.ours.cpu_ms),
)


def _chart(rows: Sequence[ToolRow], unit: str, curves: Sequence[_Curve]) -> Markup:
    lines = []
    for name, style, pick in curves:
        points = [
            Point(x=x, y=value, says=f"{row.concurrency} at once: {value:,.4g} {unit}")
            for x, row in enumerate(rows)
            if (value := pick(row)) is not None
        ]
        lines.append(Line(name=name, style=style, points=tuple(points), dots="seen"))
    top = max((point.y for line in lines for point in line.points), default=1.0) * HEADROOM
    return Markup(
        charts.line_chart(
            lines,
            first=0,
            last=max(1, len(rows) - 1),
            x_name="sessions",
            y_name=unit,
            low=0,
            high=top or 1.0,
            labels=[str(row.concurrency) for row in rows],
        )
    )
