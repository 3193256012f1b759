"""How a memory grew, by training step: sums over its changes, and figures of the graph.

Pure but for reading the changes, one after the other. Steps are put together into at most
MOST_ROWS rows, so that a long run costs no more than a short one.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from typing import Any

from memory.graph.changes import read_as
from memory.graph.fold import Builder
from memory.graph.graph import ToolGraph
from memory.search.communities import communities
from memory.types import Change, lineage_of

MOST_ROWS = 200
FRAMES = 4
"""Times at which one part of the graph is drawn (SEARL, figure 6)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """What happened in the steps up to `step`, after those of the row before, and the graph then.

    components: parts of the graph that no edge joins. clusters: of like meaning. steps: training
    steps that it covers. groups, rollouts: that were merged. created: tools that rollouts made;
    refused: creations that did not meet the form, and tools that a guard kept out; registered: new
    nodes; merged: tools that became part of a node. retrieved: tools that plans were recommended;
    called: calls of those; reusing: rollouts that called one.
    """

    step: int
    version: int
    nodes: int
    edges: int
    components: int
    clusters: int
    steps: int = 1
    groups: int = 0
    rollouts: int = 0
    created: int = 0
    refused: int = 0
    registered: int = 0
    merged: int = 0
    retrieved: int = 0
    called: int = 0
    reusing: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth:
    """The rows, and the graph at FRAMES of them at most."""

    rows: tuple[Row, ...]
    frames: tuple[tuple[int, ToolGraph], ...]
    """(training step, graph)."""


def growth(changes: Callable[[], Iterable[Change]]) -> Growth:
    """changes: returns all changes in order, at each call. Raises Unusable if a change does not fit
    those before it."""
    steps, sizes = _sizes(changes())
    ends = row_ends(steps)
    kept = frozenset(frame_places([sizes[bisect_right(steps, end) - 1] for end in ends]))
    builder = Builder()
    rows: list[Row] = []
    frames: list[tuple[int, ToolGraph]] = []
    for place, own in groupby(
        zip(steps, changes(), strict=False), key=lambda one: bisect_left(ends, one[0])
    ):
        part = []
        for _, change in own:
            with read_as(builder.version + 1):
                builder.apply(change)
            part.append(change)
        graph = builder.graph()
        before = rows[-1].step if rows else ends[0] - 1
        rows.append(_row(ends[place], ends[place] - before, graph, part))
        if place in kept:
            frames.append((ends[place], graph))
    return Growth(rows=tuple(rows), frames=tuple(frames))


def to_json(rows: Sequence[Row]) -> list[dict[str, Any]]:
    return [asdict(row) for row in rows]


def row_ends(steps: Iterable[int]) -> list[int]:
    """The last training step of each row: each step has its own, or neighbours share one."""
    latest: list[int] = []
    for step in steps:
        if not latest or step > latest[-1]:
            latest.append(step)
    if len(latest) <= MOST_ROWS:
        return latest
    return [latest[(place + 1) * len(latest) // MOST_ROWS - 1] for place in range(MOST_ROWS)]


def frame_places(sizes: Sequence[int]) -> list[int]:
    """Places of the rows at which the graph is drawn: where it first has a quarter of its size, a
    half and so on, and the last one. sizes: of the graph at the end of each row."""
    if not sizes:
        return []
    parts = (sizes[-1] * part / FRAMES for part in range(1, FRAMES))
    found = {next(at for at, size in enumerate(sizes) if size >= part) for part in parts}
    return sorted({*found, len(sizes) - 1})


def _sizes(changes: Iterable[Change]) -> tuple[list[int], list[int]]:
    """For each change: its training step, and about how many nodes and edges there are.

    A late group is counted at the step at which it arrived. A training that begins with the memory
    of another one is counted on from there.
    """
    steps: list[int] = []
    sizes: list[int] = []
    begins: dict[str, int] = {}
    latest = nodes = 0
    edges: set[tuple[int, int]] = set()
    for change in changes:
        begin = begins.setdefault(lineage_of(change.group), max(0, latest - change.step))
        latest = max(latest, begin + change.step)
        for part in change.merged:
            nodes += len(part.made) - len(part.unions)
            edges.update((one, other) for one, other, _ in part.edges)
        steps.append(latest)
        sizes.append(nodes + len(edges))
    return steps, sizes


def _row(step: int, steps: int, graph: ToolGraph, changes: Sequence[Change]) -> Row:
    def counted(name: str) -> int:
        return sum(change.counts.get(name, 0) for change in changes)

    merged = [part for change in changes for part in change.merged]
    return Row(
        step=step,
        steps=steps,
        version=graph.version,
        nodes=len(graph.by_id),
        edges=len(graph.edges),
        components=components(graph),
        clusters=int(communities(graph).max(initial=-1)) + 1,
        groups=sum(change.begins is None for change in changes),
        rollouts=counted("rollouts"),
        created=counted("created"),
        refused=counted("refused") + sum(len(change.refused) for change in changes),
        registered=sum(len(part.made) for part in merged),
        merged=sum(len(part.joined) + len(part.unions) for part in merged),
        retrieved=counted("retrieved"),
        called=counted("called"),
        reusing=counted("reusing"),
    )


def components(graph: ToolGraph) -> int:
    """Parts of the graph that no edge joins; a tool without edges is one."""
    seen: set[int] = set()
    found = 0
    for start in graph.by_id:
        if start in seen:
            continue
        found += 1
        line = [start]
        seen.add(start)
        while line:
            for other in graph.neighbours.get(line.pop(), ()):
                if other not in seen:
                    seen.add(other)
                    line.append(other)
    return found
