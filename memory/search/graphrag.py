"""The GraphRAG score of SEARL's released retrieval: meaning, words, graph, community, history.

0.30 meaning + 0.20 words + 0.20 graph + 0.15 community + 0.15 history. Graph is 0.5 ** hops from
the seeds within two hops; community is 1 in a seed's community; history is
0.5 * successes / calls + 0.3 * min(1, calls / 100) + 0.2 * exp(-steps since the last call).

The release defines neither seeds nor the community's score, and counts days. Here the seeds are
those of the hybrid walk. Training steps replace days, because a replay must find the same tools.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from memory.search.communities import Labels
from memory.search.ranking import Scores, best, hybrid
from memory.search.traversal import DECAY, SEEDS, THRESHOLD, within
from memory.types import Node

MEANING, WORDS, GRAPH, COMMUNITY, HISTORY = 0.30, 0.20, 0.20, 0.15, 0.15
HOPS = 2
OFTEN = 100
"""Calls at which a tool counts as called often."""


def scored(
    text: Scores,
    semantic: Scores,
    neighbours: Mapping[int, Iterable[int]],
    labels: Labels,
    past: Scores,
) -> Scores:
    """Score of each node, [n]. past: `Histories.at`."""
    base = hybrid(text, semantic)
    seeds = [place for place in best(base, SEEDS) if base[place] >= THRESHOLD]
    graph, community = np.zeros(len(base)), np.zeros(len(base))
    for seed in seeds:
        for place, hop in within(seed, neighbours, HOPS):
            graph[place] = max(graph[place], DECAY**hop)
        community[labels == labels[seed]] = 1
    return (
        MEANING * semantic + WORDS * text + GRAPH * graph + COMMUNITY * community + HISTORY * past
    )


class Histories:
    """Call histories of all nodes, by id; a merged node has no calls."""

    def __init__(self, nodes: Iterable[Node], size: int) -> None:
        self._last = np.zeros(size)
        self._steady = np.zeros(size)
        self._called = np.zeros(size, bool)
        for node in nodes:
            stats = node.stats
            if stats.calls > 0:
                self._called[node.id] = True
                self._last[node.id] = stats.last_used
                self._steady[node.id] = 0.5 * stats.successes / stats.calls
                self._steady[node.id] += 0.3 * min(1.0, stats.calls / OFTEN)

    @property
    def last(self) -> int:
        """Training step of the newest call."""
        return int(self._last.max(initial=0))

    def at(self, step: int) -> Scores:
        """History score [size], in [0, 1]; 0 for a tool without calls. step: training step of the
        question."""
        fresh = 0.2 * np.exp(-np.maximum(0, step - self._last))
        return np.where(self._called, self._steady + fresh, 0.0)
