"""The page of a memory as one file, by the blocks of `toolwright.page`."""

from __future__ import annotations

from memory.graph.graph import EMPTY, ToolGraph
from memory.report.drawing import drawn, layout, part_of
from memory.report.growth import Growth, Row
from memory.types import Node
from toolwright.page.document import Block, Cell, charts, document, facts, heading, note, table
from toolwright.page.plot import Plot, colour, line, plot
from toolwright.page.text import plain

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
SAID_OF_GRAPHS = (
    "The tools with most neighbours at the end, each at one place in all drawings. New ones have "
    "another colour; size: tools that are one; a line grows wider towards the later tool."
)


def render(growth: Growth, *, store: str) -> str:
    """store: as people read it, without a password."""
    graph = growth.frames[-1][1] if growth.frames else EMPTY
    tools = table(
        ("tool", "calls", "worked", "tools in one", "made at step", "description"),
        (_tool(node) for node in _busiest(graph)),
    )
    blocks = [
        facts(_tiles(growth)),
        charts(_plots(growth.rows), title="Step by step"),
        *_drawings(growth),
        heading("The tools that are called most") if tools else None,
        tools,
        note(
            "Every figure comes from the log of the memory; `memory report STORE --json` prints "
            "those of the charts."
        ),
    ]
    return document(f"{len(graph.by_id)} tools in {store}", blocks)


def _tiles(growth: Growth) -> list[tuple[str, str]]:
    if not growth.rows:
        return []
    last = growth.rows[-1]
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


def _plots(rows: tuple[Row, ...]) -> list[Plot | None]:
    def value(row: Row, name: str, unit: str) -> float:
        return float(getattr(row, name)) / (row.steps if unit == EACH else 1)

    found = []
    for title, unit, names, said in CHARTS:
        lines = [
            line(
                name,
                colour(number),
                [(float(row.step), value(row, name, unit)) for row in rows],
                "hover",
            )
            for number, name in enumerate(names)
        ]
        found.append(plot(title, title, unit or "count", lines, note=said, low=0.0))
    shares = [(float(row.step), row.reusing / row.rollouts) for row in rows if row.rollouts]
    reuse = line("rollouts that call a retrieved tool", "c0", shares, "hover")
    return [*found, plot(REUSE, "Reuse", REUSE, [reuse], low=0.0, high=1.0)]


def _drawings(growth: Growth) -> list[Block]:
    if not growth.frames:
        return []
    places = layout(part_of(growth.frames[-1][1]), growth.frames[-1][1])
    befores = [None, *(graph for _, graph in growth.frames)]
    graphs = [
        {"title": f"Step {step}: {len(graph.by_id)} tools"} | drawn(graph, places, before)
        for (step, graph), before in zip(growth.frames, befores, strict=False)
    ]
    drawings = {"kind": "graphs", "graphs": graphs}
    return [heading("One part of it, as it grew"), note(SAID_OF_GRAPHS), drawings]


def _busiest(graph: ToolGraph) -> list[Node]:
    return sorted(graph.nodes, key=lambda node: (-node.stats.calls, node.id))[:TOOLS]


def _tool(node: Node) -> list[Cell]:
    calls = node.stats.calls
    worked = f"{node.stats.successes / calls:.0%}" if calls else ""
    said = plain(node.tool.description, keep="")[:SAID]
    return [{"code": node.name}, calls, worked, node.support, node.created_step, said]
