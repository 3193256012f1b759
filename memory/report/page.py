"""The page of a memory: one file that needs no other file and no network.

Everything that a policy wrote is escaped.
"""

from __future__ import annotations

from typing import Any

from markupsafe import Markup

from memory.graph.graph import EMPTY, ToolGraph
from memory.report.drawing import drawn, layout, part_of
from memory.report.growth import Growth, Row
from memory.types import Node
from toolwright.page import pages
from toolwright.page.charts import SMALL, Line, Point, line_chart
from toolwright.page.text import fit, plain

TOOLS = 30
SAID = 120
"""Letters of a description."""

EACH = "a step"
CHARTS: tuple[tuple[str, str, tuple[str, ...], str], ...] = (
    ("The graph", "", ("nodes", "edges"), ""),
    ("Its parts", "", ("components", "clusters"), "Parts that no edge joins; clusters of meaning."),
    (
        "What came in",
        EACH,
        ("created", "registered", "merged", "refused"),
        "A tool that is made is registered if its rollout is the best of its group, and merged if "
        "the memory has one like it.",
    ),
    (
        "What is found again",
        EACH,
        ("retrieved", "called"),
        "Tools that plans were recommended, and calls of those.",
    ),
)
REUSE = "share of rollouts"


def render(growth: Growth, *, store: str) -> str:
    """store: as people read it, without a password."""
    graph = growth.frames[-1][1] if growth.frames else EMPTY
    last = growth.rows[-1] if growth.rows else None
    return pages.render(
        "memory",
        "report/page.html.jinja",
        {
            "headline": fit(f"{len(graph.by_id)} tools in {store}"),
            "tiles": _tiles(growth, last),
            "charts": _charts(growth.rows),
            "drawings": _drawings(growth),
            "tools": [_tool(node) for node in _busiest(graph)],
        },
    )


def _tiles(growth: Growth, last: Row | None) -> list[tuple[str, str]]:
    if last is None:
        return []
    rollouts = sum(row.rollouts for row in growth.rows)
    reusing = sum(row.reusing for row in growth.rows)
    tiles = [
        ("tools", f"{last.nodes:,}"),
        ("edges", f"{last.edges:,}"),
        ("tools merged into others", f"{sum(row.merged for row in growth.rows):,}"),
        ("versions", f"{last.version:,}"),
    ]
    if rollouts:
        tiles.append(("of the rollouts call a tool of the memory", f"{reusing / rollouts:.0%}"))
    return tiles


def _charts(rows: tuple[Row, ...]) -> list[dict[str, Any]]:
    if not rows:
        return []
    charts = [_chart(rows, title, y_name, names, note) for title, y_name, names, note in CHARTS]
    shares = [
        Point(x=float(row.step), y=row.reusing / row.rollouts) for row in rows if row.rollouts
    ]
    if shares:
        line = Line(name="rollouts that call a retrieved tool", style="c0", points=tuple(shares))
        svg = line_chart(
            [line], x_name="training step", y_name=REUSE, low=0.0, high=1.0, size=SMALL
        )
        charts.append(
            {"title": "Reuse", "svg": Markup(svg), "legend": [("c0", line.name)], "note": ""}
        )
    return charts


def _chart(
    rows: tuple[Row, ...], title: str, y_name: str, names: tuple[str, ...], note: str
) -> dict[str, Any]:
    def value(row: Row, name: str) -> float:
        return float(getattr(row, name)) / (row.steps if y_name == EACH else 1)

    lines = [
        Line(
            name=name,
            style=f"c{number}",
            points=tuple(Point(x=float(row.step), y=value(row, name)) for row in rows),
        )
        for number, name in enumerate(names)
    ]
    svg = line_chart(lines, x_name="training step", y_name=y_name or "count", low=0.0, size=SMALL)
    legend = [(line.style, line.name) for line in lines]
    return {"title": title, "svg": Markup(svg), "legend": legend, "note": note}


def _drawings(growth: Growth) -> list[dict[str, Any]]:
    if not growth.frames:
        return []
    places = layout(part_of(growth.frames[-1][1]), growth.frames[-1][1])
    befores = [None, *(graph for _, graph in growth.frames)]
    return [
        {
            "title": f"Step {step}: {len(graph.by_id)} tools",
            "svg": Markup(drawn(graph, places, before, title=f"the graph at step {step}")),
        }
        for (step, graph), before in zip(growth.frames, befores, strict=False)
    ]


def _busiest(graph: ToolGraph) -> list[Node]:
    return sorted(graph.nodes, key=lambda node: (-node.stats.calls, node.id))[:TOOLS]


def _tool(node: Node) -> dict[str, Any]:
    calls = node.stats.calls
    return {
        "name": fit(node.name),
        "calls": calls,
        "worked": f"{node.stats.successes / calls:.0%}" if calls else "",
        "support": node.support,
        "step": node.created_step,
        "description": plain(node.tool.description, keep="")[:SAID],
    }
