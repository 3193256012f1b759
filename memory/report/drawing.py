"""One part of a tool graph as inline SVG, at several times, each tool at one place. Pure.

Colours come from the page's style sheet. Names come from a stranger and are escaped here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from memory.graph.graph import ToolGraph
from memory.types import Node
from toolwright.page.text import text

SHOWN = 14
"""Tools of a drawing."""
WIDTH, HEIGHT, EDGE = 430, 300, 44
LONGEST = 22
"""Letters of a name."""
ROUNDS = 300

Places = npt.NDArray[np.float64]


def part_of(graph: ToolGraph, most: int = SHOWN) -> list[int]:
    """Ids of the tools to draw: outwards from the tool with most neighbours; if that part is small,
    then from the next one."""

    def weight(node_id: int) -> tuple[int, int, int]:
        node = graph.by_id[node_id]
        return (-len(graph.neighbours.get(node_id, ())), -node.stats.calls, node_id)

    found: dict[int, None] = {}
    for start in sorted(graph.by_id, key=weight):
        line = [start]
        while line and len(found) < most:
            node_id = line.pop(0)
            if node_id not in found:
                found[node_id] = None
                line += sorted(graph.neighbours.get(node_id, frozenset()) - set(found), key=weight)
        if len(found) >= most:
            break
    return list(found)


def layout(ids: Sequence[int], graph: ToolGraph) -> Mapping[int, tuple[float, float]]:
    """A place for each tool, the same for the same graph: springs along edges, and all tools push
    each other away (Fruchterman and Reingold, 1991), from a circle on."""
    n = len(ids)
    if not n:
        return {}
    angles = 2 * np.pi * np.arange(n) / n
    at: Places = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    place_of = {node_id: place for place, node_id in enumerate(ids)}
    pairs = [(place_of[a], place_of[b]) for a, b in graph.edges if {a, b} <= set(ids)]
    spring = 1.6 / np.sqrt(n)
    for round_ in range(ROUNDS):
        apart = at[:, None, :] - at[None, :, :]
        lengths = np.maximum(np.sqrt((apart**2).sum(axis=2)), 1e-3)
        force = (apart / lengths[:, :, None] ** 2 * spring**2).sum(axis=1)
        for one, other in pairs:
            pull = apart[one, other] * lengths[one, other] / spring
            force[one] -= pull
            force[other] += pull
        force -= 0.3 * at  # towards the middle; without it a tool without edges would drift away
        size = np.maximum(np.sqrt((force**2).sum(axis=1, keepdims=True)), 1e-9)
        at = at + force / size * np.minimum(size, 0.15 * (1 - round_ / ROUNDS))
    low, high = at.min(axis=0), at.max(axis=0)
    shares = (at - low) / np.maximum(high - low, 1e-9)
    x = EDGE + shares[:, 0] * (WIDTH - 2 * EDGE)
    y = EDGE / 2 + shares[:, 1] * (HEIGHT - 1.5 * EDGE)
    return {
        node_id: (round(float(x[place]), 1), round(float(y[place]), 1))
        for node_id, place in place_of.items()
    }


def drawn(
    graph: ToolGraph,
    places: Mapping[int, tuple[float, float]],
    before: ToolGraph | None,
    *,
    title: str,
) -> str:
    """The tools at this time. before: the graph of the previous drawing; a tool that is missing
    there is drawn as new."""
    there = [node_id for node_id in places if node_id in graph.by_id]
    parts = [
        f'<svg class="small" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{text(title)}">'
    ]
    for (one, other), count in graph.edges.items():
        if one in places and other in places and one in graph.by_id and other in graph.by_id:
            parts.append(_edge(places[one], places[other], count, graph, one, other))
    for node_id in there:
        new = before is None or node_id not in before.by_id
        parts.append(_tool(graph.by_id[node_id], places[node_id], new=new))
    return "\n".join([*parts, "</svg>"])


def _edge(
    start: tuple[float, float],
    end: tuple[float, float],
    count: int,
    graph: ToolGraph,
    one: int,
    other: int,
) -> str:
    """A line that is thicker at its end."""
    (x1, y1), (x2, y2) = start, end
    dx, dy = x2 - x1, y2 - y1
    length = max((dx * dx + dy * dy) ** 0.5, 1.0)
    wide = min(1.5 + count**0.5, 6.0) / 2
    across, down = -dy / length * wide, dx / length * wide
    points = f"{x1},{y1} {x2 + across:.1f},{y2 + down:.1f} {x2 - across:.1f},{y2 - down:.1f}"
    says = f"{graph.by_id[one].name} before {graph.by_id[other].name}: {count}"
    return f'<polygon class="area control" points="{points}"><title>{text(says)}</title></polygon>'


def _tool(node: Node, at: tuple[float, float], *, new: bool) -> str:
    x, y = at
    radius = min(5 + 1.5 * node.support**0.5, 14)
    name = node.name if len(node.name) <= LONGEST else node.name[: LONGEST - 1] + "…"
    says = f"{node.name}: {node.support} tools in one, {node.stats.calls} calls"
    return (
        f'<g><circle class="dot {"c1" if new else "c0"}" cx="{x}" cy="{y}" r="{radius:.1f}">'
        f"<title>{text(says)}</title></circle>"
        f'<text class="few" x="{x}" y="{y + radius + 11:.1f}" text-anchor="middle">'
        f"{text(name)}</text></g>"
    )
