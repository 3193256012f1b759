"""What is found for a question: the hybrid walk, and the GraphRAG variant."""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory.errors import BadWork, Unusable
from memory.graph.graph import EMPTY
from memory.memory import MOST_SUBTASKS, Memory
from memory.search import communities
from memory.search.communities import average_linkage
from memory.search.embedding import hashing
from memory.search.graphrag import Histories, scored
from memory.store.volatile import VolatileLog
from memory.types import Node, Stats
from tests.support.tool_memory import calls, registering, tool

CIRCLE = (
    tool("area", "area of a circle with a radius"),
    tool("radius", "radius of a circle from its circumference"),
    tool("words", "count words of a text"),
    tool("plot", "draw lines on paper"),
)


@pytest.fixture
def memory() -> Memory:
    made = Memory(VolatileLog(), hashing)
    edges = (("words", "plot", 1), ("area", "radius", 1))
    made.merge_group(registering("a", *CIRCLE, edges=edges, used={"plot": calls(100)}, step=5))
    return made


def names(memory: Memory, *subtasks: str, **how: Any) -> list[str]:
    return [found.node.name for found in memory.retrieve(subtasks, **how)]


def test_a_neighbour_is_found_by_the_edge_alone(memory: Memory) -> None:
    assert names(memory, "count the words of a text") == ["words", "plot"]
    assert names(memory, "count the words", "area of a circle", in_all=2) == ["area", "words"]
    assert names(memory, "nothing like it") == []
    assert names(memory) == []


def test_a_hostile_question_is_a_question(memory: Memory) -> None:
    assert names(memory, "\ud800 \0 words") == ["words", "plot"]
    assert names(memory, "words " * 300_000)[0] == "words"
    with pytest.raises(BadWork, match="at most 64"):
        memory.retrieve(["x"] * (MOST_SUBTASKS + 1))


def test_graphrag_adds_what_is_near_and_what_has_worked(memory: Memory) -> None:
    found = memory.retrieve(["count the words of a text"], scoring="graphrag", step=5)
    assert [one.node.name for one in found] == ["words", "plot"]
    # plot: one hop from the seed and in another community; a hundred calls that worked, now.
    assert found[1].score == pytest.approx(0.2 * 0.5 + 0.15, abs=0.02)
    later = memory.retrieve(["count the words of a text"], scoring="graphrag", step=8)
    faded = 0.15 * 0.2 * (1 - math.exp(-3))
    assert found[1].score - later[1].score == pytest.approx(faded)
    newest = memory.retrieve(["count the words of a text"], scoring="graphrag")
    assert newest == found, "the step of the newest call"


def test_the_parts_of_the_graphrag_score() -> None:
    text, semantic = np.array([1.0, 0, 0, 0, 0]), np.array([1.0, 0, 0, 0, 0.1])
    neighbours = {0: [1], 1: [0, 2], 2: [1, 3], 3: [2]}
    scores = scored(text, semantic, neighbours, np.array([0, 0, 1, 1, 1]), np.zeros(5))
    expected = [0.3 + 0.2 + 0.2 + 0.15, 0.2 * 0.5 + 0.15, 0.2 * 0.25, 0, 0.03]
    assert scores.tolist() == pytest.approx(expected)
    nothing = scored(text * 0, semantic * 0, neighbours, np.zeros(5, np.int64), np.zeros(5))
    assert not nothing.any()


@pytest.mark.parametrize(
    ("stats", "step", "expected"),
    [
        (Stats(), 9, 0),
        (Stats(calls=4, successes=1, last_used=9), 9, 0.125 + 0.012 + 0.2),
        (Stats(calls=400, successes=400, last_used=2), 3, 0.8 + 0.2 * math.exp(-1)),
        (Stats(calls=1, successes=0, last_used=7), 3, 0.003 + 0.2),
    ],
)
def test_history(stats: Stats, step: int, expected: float) -> None:
    past = Histories([Node(id=1, tool=CIRCLE[0], stats=stats)], 3).at(step)
    assert past.tolist() == pytest.approx([0, expected, 0])


POINTS = st.lists(st.integers(-50, 50), min_size=1, max_size=9, unique=True)


@given(POINTS, st.integers(1, 4))
def test_clusters_are_those_of_always_joining_the_nearest(points: list[int], count: int) -> None:
    near = -np.abs(np.subtract.outer(points, points)).astype(float)
    noise = np.triu(np.sin(np.arange(near.size)).reshape(near.shape)) * 1e-6
    near += noise + noise.T  # no two pairs alike, nor two means of pairs
    clusters = [[place] for place in range(len(points))]
    while len(clusters) > count:
        pairs = [
            (float(np.mean(near[np.ix_(one, other)])), i, j)
            for i, one in enumerate(clusters)
            for j, other in enumerate(clusters)
            if i < j
        ]
        _, i, j = max(pairs)
        clusters[i] += clusters.pop(j)
    labels = average_linkage(near, count)
    assert {frozenset(one) for one in clusters} == {
        frozenset(np.flatnonzero(labels == label).tolist()) for label in range(labels.max() + 1)
    }


def test_more_nodes_than_are_paired_join_the_nearest_cluster(
    memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(communities, "CLUSTERED", 3)
    labels = communities.communities(memory.graph)
    assert labels.shape == (4,) and (labels >= 0).all()
    assert not communities.communities(EMPTY).size
    assert names(memory, "count words", scoring="graphrag")[0] == "words"


def test_questions_while_tools_come_in_see_whole_versions(memory: Memory) -> None:
    def ask(_: int) -> None:
        for found in memory.retrieve(["count words of a text"]):
            assert found.node.name in memory.graph.names

    def merge(number: int) -> None:
        memory.merge_group(registering(f"m{number}", tool(f"m{number}", f"word{number} words")))

    with ThreadPoolExecutor(4) as pool:
        merging = pool.map(merge, range(40))
        list(pool.map(ask, range(120)))
        list(merging)
    assert memory.graph.version == 41


def test_what_another_process_merged_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    log = VolatileLog()
    one, other = Memory(log, hashing), Memory(log, hashing)
    one.merge_group(registering("a", *CIRCLE))
    assert other.newest() == 0, "within LOOK_S nobody looks"
    monkeypatch.setattr("memory.memory.LOOK_S", 0)
    assert other.newest() == 1
    assert names(other, "count words") == ["words"]
    assert names(other, "count words", version=1) == ["words"]


OTHER = registering("b", tool("x"))


def test_another_width_is_told(memory: Memory) -> None:
    memory._embed = lambda texts: np.ones((len(texts), 2), np.float32)
    for work in (lambda: memory.retrieve(["x"]), lambda: memory.merge_group(OTHER)):
        with pytest.raises(Unusable, match="begun with"):
            work()
