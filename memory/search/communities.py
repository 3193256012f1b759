"""Communities of tools: agglomerative clusters by meaning and by shared neighbours (the GraphRAG
variant of SEARL's released retrieval).

Average linkage over 0.7 * cosine + 0.3 * share of common neighbours, cut at min(max(2, n // 5), 10)
clusters. Pairs cost the square of the nodes, so only the `CLUSTERED` nodes that hold most tools are
paired. Every other node joins the cluster with the most similar mean. That bound is this project's
own.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from memory.graph.graph import ToolGraph

CLUSTERED = 512
MEANING, SHARED = 0.7, 0.3
FEWEST, MOST, NODES_EACH = 2, 10, 5

Labels = npt.NDArray[np.int64]
Matrix = npt.NDArray[np.float64]


def communities(graph: ToolGraph) -> Labels:
    """[next_id]: number of the community of each node, -1 for a node that is gone."""
    labels = np.full(graph.next_id, -1, np.int64)
    nodes = sorted(graph.nodes, key=lambda node: (-node.support, node.id))
    if not nodes:
        return labels
    core = sorted(node.id for node in nodes[:CLUSTERED])
    wide = graph.vectors[core].astype(np.float64)
    alike = MEANING * (wide @ wide.T) + SHARED * _shared(graph, core)
    labels[core] = average_linkage(alike, min(max(FEWEST, len(nodes) // NODES_EACH), MOST))
    rest = sorted(node.id for node in nodes[CLUSTERED:])
    if rest:
        means = np.stack(
            [wide[labels[core] == label].mean(axis=0) for label in range(labels.max() + 1)]
        )
        labels[rest] = np.argmax(graph.vectors[rest].astype(np.float64) @ means.T, axis=1)
    return labels


def average_linkage(alike: Matrix, clusters: int) -> Labels:
    """Labels [n], 0 for the cluster of the first item and so on, of at most so many clusters.

    alike [n, n]: symmetric. The pairs are found by following nearest neighbours, which for this
    linkage gives the same tree as always taking the nearest pair, in n squared steps.
    """
    n = len(alike)
    near = alike.copy()
    np.fill_diagonal(near, -np.inf)
    sizes = np.ones(n)
    there = np.ones(n, bool)
    joins: list[tuple[float, int, int]] = []
    chain: list[int] = []
    while len(joins) < n - 1:
        if not chain:
            chain.append(int(np.argmax(there)))
        last = chain[-1]
        other = int(np.argmax(near[last]))
        if len(chain) > 1 and near[last, chain[-2]] >= near[last, other]:
            other = chain[-2]
        if len(chain) < 2 or other != chain[-2]:
            chain.append(other)
            continue
        del chain[-2:]
        one, gone = min(last, other), max(last, other)
        joins.append((float(near[one, gone]), one, gone))
        row = (sizes[one] * near[one] + sizes[gone] * near[gone]) / (sizes[one] + sizes[gone])
        near[one], near[:, one] = row, row
        near[one, one] = -np.inf
        near[gone], near[:, gone] = -np.inf, -np.inf
        there[gone] = False
        sizes[one] += sizes[gone]
    parent = list(range(n))

    def root(item: int) -> int:
        while parent[item] != item:
            item = parent[item]
        return item

    for _, one, gone in sorted(joins, key=lambda join: -join[0])[: max(0, n - clusters)]:
        first, second = sorted((root(one), root(gone)))
        parent[second] = first
    roots = [root(item) for item in range(n)]
    numbers = {found: number for number, found in enumerate(dict.fromkeys(roots))}
    return np.array([numbers[found] for found in roots], np.int64)


def _shared(graph: ToolGraph, core: list[int]) -> Matrix:
    """Common neighbours over all neighbours of two nodes; 0 where neither has one."""
    places = {node_id: place for place, node_id in enumerate(core)}
    joined = np.zeros((len(core), len(core)))
    for place, node_id in enumerate(core):
        for other in graph.neighbours.get(node_id, ()):
            if other in places:
                joined[place, places[other]] = 1
    common = joined @ joined.T
    degrees = joined.sum(axis=1)
    either = degrees[:, None] + degrees[None, :] - common
    shared: Matrix = np.divide(common, either, out=np.zeros_like(common), where=either > 0)
    return shared
