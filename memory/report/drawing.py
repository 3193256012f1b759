"""One part of a tool graph at several times, each tool at one place, as data of a page. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from memory.graph.graph import ToolGraph
from memory.types import Node

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
    graph: ToolGraph, places: Mapping[int, tuple[float, float]], before: ToolGraph | None
) -> dict[str, Any]:
    """The tools at this time. before: the graph of the previous drawing; a tool that is missing
    there is drawn as new."""
    there = {node_id: at for node_id, at in places.items() if node_id in graph.by_id}
    return {
        "width": WIDTH,
        "height": HEIGHT,
        "edges": [
            {
                "points": _wedge(there[one], there[other], count),
                "says": f"{graph.by_id[one].name} before {graph.by_id[other].name}: {count}",
            }
            for (one, other), count in graph.edges.items()
            if one in there and other in there
        ],
        "nodes": [
            _node(graph.by_id[node_id], at, fresh=before is None or node_id not in before.by_id)
            for node_id, at in there.items()
        ],
    }


def _wedge(start: tuple[float, float], end: tuple[float, float], count: int) -> str:
    """Corners of a line that is thicker at its end."""
    (x1, y1), (x2, y2) = start, end
    dx, dy = x2 - x1, y2 - y1
    length = max((dx * dx + dy * dy) ** 0.5, 1.0)
    wide = min(1.5 + count**0.5, 6.0) / 2
    across, down = -dy / length * wide, dx / length * wide
    return f"{x1},{y1} {x2 + across:.1f},{y2 + down:.1f} {x2 - across:.1f},{y2 - down:.1f}"


def _node(node: Node, at: tuple[float, float], *, fresh: bool) -> dict[str, Any]:
    name = node.name if len(node.name) <= LONGEST else node.name[: LONGEST - 1] + "…"
    return {
        "x": at[0],
        "y": at[1],
        "radius": round(min(5 + 1.5 * node.support**0.5, 14), 1),
        "name": name,
        "says": f"{node.name}: {node.support} tools in one, {node.stats.calls} calls",
        "fresh": fresh,
    }
