"""What a group's work makes of a graph: classes, names, edges, counts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory.graph.graph import EMPTY, ToolGraph
from memory.graph.merging import Mode
from memory.types import GroupWork, Stats
from tests.support.tool_memory import calls, decided, registering, rollout, tool

Vectors = Mapping[str, Sequence[float]]


def after(*works: tuple[GroupWork, Vectors]) -> ToolGraph:
    graph = EMPTY
    for work, vectors in works:
        _, graph = decided(graph, work, vectors)
    return graph


QUAD = (registering("g", tool("quad")), {"quad": (1, 0)})


def test_a_name_of_another_tool_gets_a_suffix_of_its_content() -> None:
    again = tool("quad", "something else")
    change, graph = decided(after(QUAD), registering("h", again), {"quad": (0, 1)})
    name = graph.nodes[1].name
    assert change.registered == {"quad": name} and change.canonical == ({"quad": name},)
    assert name.startswith("quad_") and {"quad", name} == set(graph.names)
    space: dict[str, object] = {}
    exec(graph.nodes[1].tool.code, space)
    assert space[name] is space["quad"]


def test_parallel_edges_are_added_and_none_leads_to_a_name_that_nobody_has() -> None:
    first = registering("g", tool("a"), tool("b"), edges=(("a", "b", 1), ("a", "ghost", 7)))
    second = registering("h", tool("a2"), edges=(("a2", "a", 5), ("a2", "b", 2), ("b", "a", 1)))
    graph = after((first, {"a": (1, 0), "b": (0, 1)}), (second, {"a2": (1, 0)}))
    assert graph.edges == {(0, 1): 3, (1, 0): 1}


def test_two_rollouts_that_made_one_tool_meet_whoever_registers() -> None:
    vectors = {"one": (1, 0), "two": (1, 0.1), "three": (0, 1)}
    rollouts = (
        rollout("t0", tool("one")),
        rollout("t1", tool("two")),
        rollout("t2", tool("three")),
    )
    for registers, expected in (("", "one"), ("t2", "one"), ("t1", "two")):
        work = GroupWork(group="g", step=1, rollouts=rollouts, registers=registers)
        change, graph = decided(EMPTY, work, vectors)
        assert change.canonical == ({"one": expected}, {"two": expected}, {"three": "three"})
        assert [node.name for node in graph.nodes] == list(change.registered.values())


def test_a_called_node_goes_by_its_own_name_and_an_own_candidate_hides_it() -> None:
    graph = after(QUAD, (registering("h", tool("roots")), {"roots": (1, 0.1)}))
    rollouts = (
        rollout("t0", used={"roots": calls(2, 1), "python": calls(3)}),
        rollout("t1", tool("roots", "my own"), used={"roots": calls(5)}),
    )
    work = GroupWork(group="i", step=9, rollouts=rollouts)
    change, graph = decided(graph, work, {"roots": (0, 1)})
    assert change.canonical[0] == {"roots": "quad"}
    assert change.canonical[1]["roots"].startswith("roots_")
    assert graph.nodes[0].stats == Stats(calls=2, successes=1, last_used=9, seconds=0.5)


def test_calls_of_what_is_registered_count_for_its_node() -> None:
    work = registering("g", tool("quad"), used={"quad": calls(4, 3)}, step=7)
    _, graph = decided(EMPTY, work, {"quad": (1, 0)})
    assert graph.nodes[0].stats == Stats(calls=4, successes=3, last_used=7, seconds=0.5)


def test_union_find_joins_nodes_that_stood_apart() -> None:
    """With what each had: support, names, and edges to others."""
    edges = (("a", "c", 4), ("c", "x", 4), ("x", "a", 1))
    far = registering("g", tool("a"), tool("c"), tool("x"), edges=edges)
    graph = after((far, {"a": (1, 0, 0), "c": (0.766, 0.643, 0), "x": (0, 0, 1)}))
    bridge = registering("h", tool("b"), mode="union_find")
    change, joined = decided(graph, bridge, {"b": (0.94, 0.342, 0)})
    assert change.unions == ((1, 0),)
    found = [(n.name, n.support, n.aliases) for n in joined.nodes]
    assert found == [("a", 3, ("c", "b")), ("x", 1, ())]
    assert joined.edges == {(0, 2): 4, (2, 0): 1}
    assert joined.neighbours == {0: frozenset({2}), 2: frozenset({0})}
    assert joined.next_id == 3 and joined.gone.tolist() == [1]
    assert graph.nodes[1].name == "c", "the version before stays as it was"


@pytest.mark.parametrize(
    ("prefer", "successes", "body"),
    [("first", 9, "x"), ("higher_success", 9, "x + 1"), ("higher_success", 0, "x")],
)
def test_the_preferred_code_runs_under_the_nodes_name(prefer, successes, body) -> None:  # type: ignore[no-untyped-def]
    old = registering("g", tool("quad"), used={"quad": calls(4, 2)})
    new = tool("roots", code="def roots(x):\n    return x + 1\n", arguments="x: a number")
    work = registering("h", new, used={"roots": calls(9, successes)}, prefer=prefer)
    graph = after((old, {"quad": (1, 0)}), (work, {"roots": (1, 0)}))
    (node,) = graph.nodes
    space: dict[str, object] = {}
    exec(node.tool.code, space)
    assert space["quad"](1) == eval(body, {"x": 1})  # type: ignore[operator]
    assert (node.name, node.tool.description) == ("quad", "quad")
    assert bool(node.tool.arguments) == (body == "x + 1")


def test_more_support_gives_its_code_where_nodes_are_joined() -> None:
    a, c = tool("a"), tool("c", code="def c():\n    return 'c'\n")
    vectors = {"a": (1, 0), "c": (0.766, 0.643), "b": (0.94, 0.342)}
    graph = after(
        (registering("g", a), vectors),
        (registering("h", c), vectors),
        (registering("i", c), vectors),
    )
    work = registering("j", tool("b"), mode="union_find", prefer="higher_support")
    _, joined = decided(graph, work, vectors)
    space: dict[str, object] = {}
    exec(joined.nodes[0].tool.code, space)
    assert joined.nodes[0].name == "a" and space["a"]() == "c"  # type: ignore[operator]


VECTORS = st.tuples(*[st.floats(-1, 1, width=16) for _ in range(3)])
WORKS = st.lists(
    st.tuples(
        st.lists(VECTORS, max_size=4),
        st.lists(st.tuples(*[st.sampled_from("abcdefg")] * 2, st.integers(1, 3)), max_size=4),
        st.sampled_from(["greedy", "union_find"]),
    ),
    max_size=6,
)


@given(WORKS)
def test_every_fold_keeps_the_invariants(drawn: list[tuple[list, list, Mode]]) -> None:  # type: ignore[type-arg]
    graph, made = EMPTY, 0
    for number, (vectors, edges, mode) in enumerate(drawn):
        named = dict(zip("abcd", vectors, strict=False))
        work = registering(
            f"g{number}", *(tool(name) for name in named), edges=tuple(edges), mode=mode
        )
        change, graph = decided(graph, work, named)
        made += len(vectors)
        assert set(change.registered) == set(change.canonical[0]) == set(named)
        assert change.canonical == (change.registered,), "who registers all has the nodes' names"
    ids = set(graph.by_id)
    assert set(graph.names.values()) == ids
    assert len({node.name for node in graph.nodes}) == len(ids)
    assert all(graph.node(node.name) is node for node in graph.nodes)
    assert all(one in ids and other in ids and one != other for one, other in graph.edges)
    joined = {frozenset(ends) for ends in graph.edges}
    assert joined == {frozenset((i, j)) for i, js in graph.neighbours.items() for j in js}
    assert sum(node.support for node in graph.nodes) == made


@given(st.lists(VECTORS, max_size=7), st.integers(0, 7), st.sampled_from(["greedy", "union_find"]))
def test_classes_are_those_of_the_plain_formula(
    vectors: list[tuple[float, ...]], old: int, mode: Mode
) -> None:
    names = [f"t{place}" for place in range(len(vectors))]
    named = dict(zip(names, vectors, strict=True))
    old = min(old, len(names))
    graph = EMPTY
    if old:
        _, graph = decided(EMPTY, registering("g", *map(tool, names[:old]), mode=mode), named)
    change, _ = decided(graph, registering("h", *map(tool, names[old:]), mode=mode), named)
    representatives = _plainly(np.array(vectors).reshape(len(vectors), 3), 0.88, mode)
    assert [change.registered[name] for name in names[old:]] == [
        names[place] for place in representatives[old:]
    ]


def _plainly(vectors: np.ndarray, delta: float, mode: Mode) -> list[int]:  # type: ignore[type-arg]
    """The representative of each, written down as it is defined."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    unit = (vectors / np.where(lengths > 0, lengths, 1)).astype(np.float32).astype(np.float64)
    lengths = np.linalg.norm(unit, axis=1, keepdims=True)
    unit /= np.where(lengths > 0, lengths, 1)
    near = unit @ unit.T
    found = list(range(len(unit)))
    if mode == "greedy":
        for place in found:
            nodes = [node for node in range(place) if found[node] == node]
            best = max(nodes, key=lambda node: near[place, node], default=place)
            if nodes and near[place, best] >= delta - 1e-12:
                found[place] = best
        return found
    reach = near >= delta - 1e-12
    for _ in unit:
        reach = reach | (reach @ reach)
    return [min([place, *np.flatnonzero(reach[place]).tolist()]) for place in found]
