"""The tool graph that a trajectory adds to the memory: its plan, with tools for subtasks. Pure.

Source: SEARL (arXiv 2604.07791), section 3.3, the map from plan graph to tool graph.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

Holes = Literal["bypass", "drop"]
"""A subtask without tools: its predecessors are joined to its successors, or its edges go."""


def tool_graph(
    nodes: Sequence[int],
    edges: Iterable[tuple[int, int]],
    phi: Mapping[int, Sequence[str]],
    mode: Holes = "bypass",
) -> tuple[list[str], list[tuple[str, str]]]:
    """(tools, edges between tools), each once, in order of appearance.

    nodes, edges: of the plan, which has no cycle. phi: subtask -> the tools that its steps made or
    called, without base tools.
    """
    after: dict[int, list[int]] = {node: [] for node in nodes}
    for one, other in edges:
        after[one].append(other)
    tools = list(dict.fromkeys(tool for node in nodes for tool in phi.get(node, ())))
    found: dict[tuple[str, str], None] = {}
    for node in nodes:
        if not phi.get(node):
            continue
        for other in _next(node, after, phi) if mode == "bypass" else after[node]:
            for pair in ((a, b) for a in phi[node] for b in phi.get(other, ())):
                if pair[0] != pair[1]:
                    found[pair] = None
    return tools, list(found)


def _next(
    node: int, after: Mapping[int, Sequence[int]], phi: Mapping[int, Sequence[str]]
) -> list[int]:
    """The subtasks with tools that `node` reaches through subtasks without."""
    found: dict[int, None] = {}
    seen: set[int] = set()
    line = list(reversed(after[node]))
    while line:
        other = line.pop()
        if other in seen:
            continue
        seen.add(other)
        if phi.get(other):
            found[other] = None
        else:
            line.extend(reversed(after[other]))
    return list(found)
