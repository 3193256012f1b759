"""One version of the memory, ready for questions.

The index of words and the communities are made at the first question that needs them, once for each
version.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from copy import copy
from functools import cached_property

import numpy as np

from memory.graph.graph import ToolGraph, Vectors
from memory.search import graphrag, traversal
from memory.search.communities import Labels, communities
from memory.search.ranking import Scores, best, hybrid
from memory.search.text import TextIndex, Texts
from memory.types import Found, Scoring


class Version:
    """Never changed. Thread-safe."""

    def __init__(self, graph: ToolGraph, texts: Texts) -> None:
        """texts: of all nodes of the graph, by id; others may follow."""
        self.graph = graph
        self._texts = texts
        self._lock = threading.Lock()

    def again(self, graph: ToolGraph) -> Version:
        """The same version under another number. graph: has the same nodes and edges."""
        with self._lock:
            made = copy(self)
        made.graph, made._lock = graph, threading.Lock()
        return made

    def find(
        self,
        subtasks: Sequence[str],
        queries: Vectors,
        *,
        per_subtask: int,
        in_all: int,
        alpha: float,
        scoring: Scoring,
        step: int | None,
    ) -> list[Found]:
        """The tools for a plan, the best first. queries [n, d]: embeddings of the subtasks."""
        if not self.graph.by_id:
            return []
        lists = [
            self._walked(text, query, per_subtask, alpha)
            if scoring == "hybrid"
            else self._ranked(text, query, per_subtask, step)
            for text, query in zip(subtasks, queries, strict=True)
        ]
        return [
            Found(node=self.graph.by_id[place], score=score)
            for place, score in traversal.together(lists, in_all)
        ]

    def _walked(self, text: str, query: Vectors, k: int, alpha: float) -> list[tuple[int, float]]:
        scores = hybrid(self._text.scores(text), self._semantic(query), alpha)
        return traversal.walk(self._without_gone(scores), self.graph.neighbours, k=k)

    def _ranked(
        self, text: str, query: Vectors, k: int, step: int | None
    ) -> list[tuple[int, float]]:
        scores = graphrag.scored(
            self._text.scores(text),
            self._semantic(query),
            self.graph.neighbours,
            self._communities,
            self._histories.at(self._histories.last if step is None else step),
        )
        scores = self._without_gone(scores)
        return [
            (place, float(scores[place]))
            for place in best(scores, k)
            if scores[place] >= traversal.THRESHOLD
        ]

    def _semantic(self, query: Vectors) -> Scores:
        return (self.graph.vectors @ query).astype(np.float64)

    def _without_gone(self, scores: Scores) -> Scores:
        scores[self.graph.gone] = -1.0
        return scores

    @property
    def _text(self) -> TextIndex:
        with self._lock:
            return self._index

    @cached_property
    def _index(self) -> TextIndex:
        return TextIndex(self._texts, self.graph.next_id, self.graph.gone)

    @cached_property
    def _histories(self) -> graphrag.Histories:
        return graphrag.Histories(self.graph.nodes, self.graph.next_id)

    @cached_property
    def _communities(self) -> Labels:
        return communities(self.graph)
