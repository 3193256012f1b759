"""The tools for a subtask: the best by score, and their neighbours in the graph.

The paper names only the walk; the numbers are this project's. From the best `seeds` nodes at or
above `threshold` the graph is walked without directions; a node at h hops from seed s has score(s)
* decay ** h, a seed at least its own score. Pure, breadth first, linear in what it meets.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence

from memory.search.ranking import Scores, best

SEEDS, HOPS, DECAY, THRESHOLD = 2, 1, 0.5, 0.2
PER_SUBTASK, IN_ALL = 2, 3
"""Maximum number of tools for a subtask, and for a prompt."""


def walk(
    scores: Scores,
    neighbours: Mapping[int, Iterable[int]],
    *,
    k: int = PER_SUBTASK,
    seeds: int = SEEDS,
    hops: int = HOPS,
    decay: float = DECAY,
    threshold: float = THRESHOLD,
) -> list[tuple[int, float]]:
    """The k best (place, score); equal scores in the order of their places.

    scores [n]: of each node for the query. neighbours: place -> places, both ways.
    """
    starts = [place for place in best(scores, seeds) if scores[place] >= threshold]
    found: dict[int, float] = {}
    for start in starts:
        for place, hop in within(start, neighbours, hops):
            found[place] = max(found.get(place, 0.0), float(scores[start]) * decay**hop)
    ranked = sorted(found.items(), key=lambda entry: (-entry[1], entry[0]))
    return ranked[: max(0, k)]


def together(
    subtasks: Iterable[Sequence[tuple[int, float]]], in_all: int = IN_ALL
) -> list[tuple[int, float]]:
    """The tools of several subtasks as one list: each with its best score, the best first."""
    found: dict[int, float] = {}
    for ranked in subtasks:
        for place, score in ranked:
            found[place] = max(found.get(place, score), score)
    ranked_all = sorted(found.items(), key=lambda entry: (-entry[1], entry[0]))
    return ranked_all[: max(0, in_all)]


def within(
    start: int, neighbours: Mapping[int, Iterable[int]], hops: int
) -> Iterable[tuple[int, int]]:
    """(place, hops from `start`), the nearest first."""
    seen = {start}
    line = deque([(start, 0)])
    while line:
        place, hop = line.popleft()
        yield place, hop
        if hop < hops:
            for other in sorted(neighbours.get(place, ())):
                if other not in seen:
                    seen.add(other)
                    line.append((other, hop + 1))
