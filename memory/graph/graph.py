"""The tool graph at one version.

Invariants
- Every name that was ever registered leads to exactly one node; no two nodes have one name.
- An edge joins two nodes that are there, never one with itself.
- A node's id is its place in everything that has a row a node. Ids are never given twice; the row
  of a node that was merged away stays, and counts for nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import numpy.typing as npt

from memory.graph.merging import TOLERANCE
from memory.types import Iteration, Node, Waiting

Vectors = npt.NDArray[np.float32]

SLACK = 1e-4
"""More than the float32 error of a cosine in a few thousand dimensions."""


@dataclass(frozen=True, kw_only=True)
class ToolGraph:
    """One version of the memory; never changed.

    by_id: nodes in the order of their ids. vectors: float32 [next_id, d], rows of length 1, or 0
    for a text without words. names: every name -> id. edges: (from, to) ids -> times observed.
    neighbours: id -> ids that an edge joins it with, either way. apart: no two nodes have this
    cosine or more, unless a check kept them apart. content: the version that nodes and edges are
    of: no change since then touched them. waiting: groups that are merged when a later iteration
    begins, by their names. begun: run -> step -> the version that this iteration sees.
    """

    by_id: Mapping[int, Node] = field(default_factory=dict)
    vectors: Vectors = field(default_factory=lambda: np.zeros((0, 0), np.float32))
    names: Mapping[str, int] = field(default_factory=dict)
    edges: Mapping[tuple[int, int], int] = field(default_factory=dict)
    neighbours: Mapping[int, frozenset[int]] = field(default_factory=dict)
    apart: float = 0.0
    version: int = 0
    content: int = 0
    waiting: Mapping[str, Waiting] = field(default_factory=dict)
    begun: Mapping[str, Mapping[int, int]] = field(default_factory=dict)

    def seen_by(self, iteration: Iteration) -> int | None:
        """The version that an iteration sees; None if neither it nor a later iteration of its run
        has begun. A skipped iteration sees the version before the next one."""
        steps = self.begun.get(iteration.run, {})
        if iteration.step in steps:
            return steps[iteration.step]
        later = min((step for step in steps if step > iteration.step), default=None)
        return None if later is None else steps[later] - 1

    @cached_property
    def nodes(self) -> tuple[Node, ...]:
        """Nodes in the order of their registration."""
        return tuple(self.by_id.values())

    @property
    def next_id(self) -> int:
        return len(self.vectors)

    @cached_property
    def gone(self) -> npt.NDArray[np.int64]:
        """Ids of nodes that were merged away."""
        if len(self.by_id) == self.next_id:
            return np.zeros(0, np.int64)
        return np.array([i for i in range(self.next_id) if i not in self.by_id], np.int64)

    def node(self, name: str) -> Node | None:
        """The node that a name leads to."""
        found = self.names.get(name)
        return None if found is None else self.by_id[found]

    def near(self, vectors: Vectors, delta: float) -> list[list[tuple[int, float]]]:
        """For each vector (id, cosine) of the nodes at or above `delta`, the nearest first, the
        earliest of equals.

        vectors: float32 [m, d], rows of length 1 or 0. All nodes are compared in float32, which is
        fast, and those that may be near again in float64, which decides.
        """
        if not len(self.vectors) or not len(vectors):
            return [[] for _ in vectors]
        maybe = self.vectors @ vectors.T >= delta - SLACK
        answers = []
        for vector, column in zip(vectors, maybe.T, strict=True):
            places = np.flatnonzero(column)
            found = [
                (place, cosine)
                for place, cosine in near_enough(self.vectors[places], places, vector, delta)
                if place in self.by_id
            ]
            answers.append(sorted(found, key=lambda entry: (-entry[1], entry[0])))
        return answers


def near_enough(
    rows: Vectors, places: npt.NDArray[np.int64], vector: Vectors, delta: float
) -> list[tuple[int, float]]:
    """(place, cosine) of the rows whose cosine with the vector is `delta` or more, in float64.

    Each row is summed on its own, so that equal rows are equally near. A row of length 0 is never
    near.
    """
    if not len(places):
        return []
    wide, own = rows.astype(np.float64), vector.astype(np.float64)
    lengths = np.sqrt((wide * wide).sum(axis=1)) * np.sqrt((own * own).sum())
    products = (wide * own).sum(axis=1)
    cosines = np.divide(products, lengths, out=np.zeros(len(wide)), where=lengths > 0)
    kept = cosines >= delta - TOLERANCE
    return list(zip(places[kept].tolist(), cosines[kept].tolist(), strict=True))


EMPTY = ToolGraph()
