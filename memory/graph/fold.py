"""From changes to a graph: one mutable builder, which gives out immutable versions.

Invariants
- The same changes give the same graph, bit for bit, in every process: the fold computes only sums,
  in the order of the changes.
- A version costs its dictionaries; its vectors are a view of rows that only grow.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from memory.graph.graph import EMPTY, ToolGraph, Vectors
from memory.types import Change, Joined, NewNode, Node, Tool

MOST_INPUTS = 8
"""Recorded inputs that a node keeps."""


class Builder:
    """Builds the newest version."""

    def __init__(self, graph: ToolGraph = EMPTY) -> None:
        """graph: version to continue from."""
        self._nodes = dict(graph.by_id)
        self._rows: Vectors = graph.vectors
        self._count = graph.next_id
        self._names = dict(graph.names)
        self._edges = dict(graph.edges)
        self._neighbours = dict(graph.neighbours)
        self._apart = graph.apart
        self._content = graph.content
        self._waiting = dict(graph.waiting)
        self._begun = {run: dict(steps) for run, steps in graph.begun.items()}
        self.version = graph.version

    def graph(self) -> ToolGraph:
        """The current version; later changes do not alter it."""
        vectors = self._rows[: self._count]
        vectors.flags.writeable = False
        return ToolGraph(
            by_id=dict(self._nodes),
            vectors=vectors,
            names=dict(self._names),
            edges=dict(self._edges),
            neighbours=dict(self._neighbours),
            apart=self._apart,
            version=self.version,
            content=self._content,
            waiting=dict(self._waiting),
            begun={run: dict(steps) for run, steps in self._begun.items()},
        )

    def apply(self, change: Change) -> None:
        """Applies the next change. Raises KeyError or ValueError for a change that was decided
        against another memory; the builder must not be used after that."""
        version = self.version + 1
        if change.waits is not None:
            self._waiting[change.group] = change.waits
        else:
            for part in change.merged:
                self._merge(part)
                self._content = version
        if (begun := change.begins) is not None:
            for part in change.parts:
                del self._waiting[part.group]
            self._begun.setdefault(begun.run, {})[begun.step] = version
        self.version = version

    def _merge(self, change: Change) -> None:
        for gone, into in change.unions:
            self._unite(gone, into)
        for made in change.made:
            self._add(made, change.step)
        for joined in change.joined:
            self._join(joined)
        for node_id, tool in change.replaced.items():
            self._nodes[node_id] = replace(self._nodes[node_id], tool=tool)
        for node_id, stats in change.used.items():
            node = self._nodes[node_id]
            self._nodes[node_id] = replace(node, stats=node.stats + stats)
        for one, other, count in change.edges:
            self._edge(one, other, count)
        self._apart = max(self._apart, change.delta)

    def _add(self, made: NewNode, step: int) -> None:
        row = np.frombuffer(made.vector, dtype="<f4").astype(np.float32)
        if not self._count and not self._rows.size:
            self._rows = np.zeros((0, len(row)), np.float32)
        if self._count == len(self._rows):  # room for twice as many; views keep the old rows
            rows = np.zeros((max(64, 2 * self._count), self._rows.shape[1]), np.float32)
            rows[: self._count] = self._rows[: self._count]
            self._rows = rows
        self._rows[self._count] = row
        node_id, self._count = self._count, self._count + 1
        self._nodes[node_id] = Node(
            id=node_id, tool=made.tool, created_step=step, source=made.source
        )
        self._names[made.tool.name] = node_id

    def _join(self, joined: Joined) -> None:
        node = self._nodes[joined.into]
        aliases = node.aliases
        if joined.name not in self._names:
            self._names[joined.name] = joined.into
            aliases = (*aliases, joined.name)
        self._nodes[joined.into] = replace(
            node,
            aliases=aliases,
            support=node.support + 1,
            tool=_with_inputs(node.tool, joined.inputs),
        )

    def _unite(self, gone_id: int, into_id: int) -> None:
        gone, node = self._nodes.pop(gone_id), self._nodes[into_id]
        self._nodes[into_id] = replace(
            node,
            aliases=(*node.aliases, gone.name, *gone.aliases),
            support=node.support + gone.support,
            created_step=min(node.created_step, gone.created_step),
            stats=node.stats + gone.stats,
        )
        for name in (gone.name, *gone.aliases):
            self._names[name] = into_id
        for other in sorted(self._neighbours.pop(gone_id, ())):
            if rest := self._neighbours.pop(other) - {gone_id}:
                self._neighbours[other] = rest
            for ends, moved in (
                ((gone_id, other), (into_id, other)),
                ((other, gone_id), (other, into_id)),
            ):
                if count := self._edges.pop(ends, 0):
                    self._edge(*moved, count)

    def _edge(self, one: int, other: int, count: int) -> None:
        if one == other:
            return
        if one not in self._nodes or other not in self._nodes:
            raise KeyError(f"an edge joins {one} and {other}, and one of them is not a node")
        self._edges[one, other] = self._edges.get((one, other), 0) + count
        self._neighbours[one] = self._neighbours.get(one, frozenset()) | {other}
        self._neighbours[other] = self._neighbours.get(other, frozenset()) | {one}


def folded(changes: Iterable[Change], start: ToolGraph = EMPTY) -> ToolGraph:
    """The version after `changes`."""
    builder = Builder(start)
    for change in changes:
        builder.apply(change)
    return builder.graph()


def _with_inputs(tool: Tool, inputs: tuple[str, ...]) -> Tool:
    more = tuple(text for text in inputs if text not in tool.inputs)
    return replace(tool, inputs=(*tool.inputs, *more)[:MOST_INPUTS]) if more else tool
