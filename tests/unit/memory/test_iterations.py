"""Iterations: one version for all their rollouts, and one graph whatever order groups end in."""

from __future__ import annotations

import json
from collections.abc import Iterable
from hashlib import sha256
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memory import history
from memory.admission import check_work
from memory.edge import wire
from memory.errors import BadWork
from memory.graph import snapshot
from memory.graph.changes import from_bytes, to_bytes
from memory.graph.graph import ToolGraph
from memory.memory import Memory
from memory.search.embedding import hashing
from memory.store import pages
from memory.store.volatile import VolatileLog
from memory.types import GroupWork, Iteration
from tests.support.tool_memory import calls, registering, rollout, tool, without_snapshots

pytestmark = pytest.mark.quick


def of(step: int, run: str = "run") -> Iteration:
    return Iteration(run=run, step=step)


def work(name: str, *tools: Any, step: int = 0, **parts: Any) -> GroupWork:
    return registering(f"run/{name}", *tools, step=step, iteration=of(step), **parts)


def figures(graph: ToolGraph) -> tuple[Any, ...]:
    """Everything of a graph but the numbers of its versions."""
    return (
        graph.vectors.tobytes(),
        list(graph.by_id.items()),
        graph.names,
        list(graph.edges.items()),
        graph.neighbours,
        graph.apart,
    )


CHAIN = (
    work("g1", tool("count", "count all words of a text")),
    work("g2", tool("counter", "count all words of a long text"), edges=(("counter", "area", 2),)),
    work("g3", tool("area", "area of a circle"), tool("words", "count words of a long text")),
    work("g4", tool("count", "something else entirely"), used={"count": calls(3, 2)}),
)


WORDS = ["count", "words", "letters", "text", "circle", "area", "draw", "solve", "roots"]
TEXTS = st.lists(st.sampled_from(WORDS), min_size=1, max_size=4).map(" ".join)
NAMES = st.sampled_from(["f", "g", "h"])
GROUPS = st.lists(
    st.tuples(
        st.lists(st.tuples(NAMES, TEXTS), max_size=2),
        st.lists(st.tuples(NAMES, NAMES), max_size=2),
        st.sampled_from(["greedy", "union_find"]),
        st.sampled_from(["first", "higher_support", "higher_success"]),
        st.sampled_from([0.5, 0.88]),
        st.integers(0, 2),
    ),
    min_size=2,
    max_size=6,
)


@settings(max_examples=60, deadline=None)
@given(drawn=GROUPS, data=st.data())
def test_any_order_of_any_groups_makes_one_graph(drawn: list[Any], data: st.DataObject) -> None:
    works = [
        work(
            f"g{number}",
            *(tool(name, text) for name, text in made),
            edges=tuple((one, other, 1) for one, other in edges),
            used={one: calls(2, 1) for one, _ in edges},
            mode=mode,
            prefer=prefer,
            delta=delta,
            step=step,
        )
        for number, (made, edges, mode, prefer, delta, step) in enumerate(drawn)
    ]

    def rolled_out(order: Iterable[GroupWork]) -> tuple[Any, ...]:
        """Iterations begin in turn, each after all groups of those before it."""
        memory = Memory(VolatileLog(), hashing)
        told = {}
        for step in range(4):
            memory.begin(of(step))
            for one in order:
                if one.step == step:
                    told[one.group] = memory.merge_group(one).canonical
        return figures(memory.graph), told

    assert rolled_out(works) == rolled_out(data.draw(st.permutations(works)))


def test_an_iteration_sees_one_version_for_ever() -> None:
    log = VolatileLog()
    memory = Memory(log, hashing)
    first, _ = memory.begin(of(0))
    for one in CHAIN:
        memory.merge_group(one)
        assert memory.begin(of(0)) == (first, 0)
        assert not memory.retrieve(["count words"], version=memory.begin(of(0))[0])
    late = work("g9", tool("draw", "draw a picture"))
    second, registered = memory.begin(of(1))
    assert registered == 5
    found = [one.node.name for one in memory.retrieve(["count words of a text"], version=second)]
    memory.merge_group(late)  # of an iteration that is over: it waits for the next one
    # A process that starts again, from whatever is left of the log, gives the same answers.
    for other in (memory, Memory(log, hashing), Memory(without_names(log), hashing)):
        assert [other.begin(of(step))[0] for step in (0, 1)] == [first, second]
        again = other.retrieve(["count words of a text"], version=second)
        assert [one.node.name for one in again] == found
        assert list(other.graph.waiting) == ["run/g9"]
    third, registered = memory.begin(of(2))
    assert registered == 1 and memory.at(third).node("draw") is not None
    assert memory.at(second).node("draw") is None


def without_names(log: VolatileLog) -> VolatileLog:
    """The changes under their own names, without snapshots."""
    copy = VolatileLog()
    for place, data in enumerate(pages(log, 0)):
        copy.append(from_bytes(data).group, data, place)
    return copy


def test_an_iteration_that_was_passed_over_sees_what_was_there_before_the_next() -> None:
    memory = Memory(VolatileLog(), hashing)
    memory.merge_group(work("g1", tool("a", "first tool of all")))
    third, _ = memory.begin(of(3))
    memory.merge_group(work("g2", tool("b", "another thing altogether"), step=3))
    memory.begin(of(4))
    assert memory.begin(of(2)) == (third - 1, 0)
    assert memory.begin(of(2)) == (third - 1, 0)
    assert not memory.at(third - 1).by_id


def test_names_of_a_group_are_those_of_the_version_that_it_saw() -> None:
    """A node that another group of the iteration makes gives its name to no tool of this one."""
    memory = Memory(VolatileLog(), hashing)
    memory.merge_group(work("g1", tool("count", "count the words of a text")))
    memory.begin(of(1))
    told = memory.merge_group(work("g2", tool("tally", "count the words of a text"), step=0))
    assert told.canonical == ({"tally": "tally"},) and not told.registered
    seen = memory.merge_group(work("g3", tool("tally", "count the words of a text"), step=1))
    assert seen.canonical == ({"tally": "count"},)
    memory.begin(of(2))
    (node,) = memory.graph.nodes
    assert (node.name, node.aliases, node.support) == ("count", ("tally",), 3)


def test_what_others_left_waiting_is_merged_when_a_run_begins() -> None:
    memory = Memory(VolatileLog(), hashing)
    memory.merge_group(work("g1", tool("a", "left by an earlier run"), step=7))
    assert memory.graph.waiting
    version, registered = memory.begin(of(0, run="new"))
    assert registered == 1 and memory.at(version).node("a") is not None
    memory.begin(of(8))
    assert not memory.graph.waiting


def test_a_group_that_comes_again_waits_once() -> None:
    memory = Memory(VolatileLog(), hashing)
    first = memory.merge_group(CHAIN[0])
    assert memory.merge_group(CHAIN[0]) == first
    memory.begin(of(1))
    assert memory.merge_group(CHAIN[0]) == first
    assert not memory.graph.waiting and [n.support for n in memory.graph.nodes] == [1]


def test_two_processes_begin_an_iteration_once() -> None:
    log = VolatileLog()
    one, other = Memory(log, hashing), Memory(log, hashing)
    one.merge_group(CHAIN[0])
    version, _ = one.begin(of(1))
    assert other.begin(of(1)) == (version, 0)
    other.merge_group(work("g5", tool("draw", "draw a picture"), step=1))
    assert other.begin(of(2))[0] == one.begin(of(2))[0]
    assert figures(one.graph) == figures(other.graph)


def test_a_snapshot_keeps_what_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "LEAST", 1)
    log = VolatileLog()
    memory = Memory(log, hashing)
    for one in CHAIN:
        memory.merge_group(one)
    began, _ = memory.begin(of(0))
    assert log.snapshots(1 << 30)
    again = Memory(log, hashing)
    assert list(again.graph.waiting) == [one.group for one in CHAIN]
    assert again.begin(of(0)) == (began, 0)
    version, _ = again.begin(of(1))
    folded = Memory(without_snapshots(log), hashing)
    assert figures(folded.at(version)) == figures(again.at(version))
    assert folded.graph.begun == again.graph.begun == {"run": {0: began, 1: version}}


def test_a_memory_of_an_older_release_goes_on() -> None:
    log = VolatileLog()
    memory = Memory(log, hashing)
    memory.merge_group(registering("old/g0", tool("a", "made by an older release"), step=3))
    (data,) = pages(log, 0)
    assert not {"waits", "begins", "parts"} & set(json.loads(data))
    assert to_bytes(from_bytes(data)) == data
    whole = snapshot.from_bytes(older(snapshot.to_bytes(memory.graph, data)), data)
    assert (whole.content, whole.waiting, whole.begun) == (1, {}, {})
    assert memory.begin(of(0))[0] == 2 and memory.at(2).node("a") is not None
    assert memory.before("run", 0) == 2 and memory.before("old", 3) == 0


def older(data: bytes) -> bytes:
    """A snapshot as it was before there were iterations."""
    magic, rest = data[: data.index(b"\n") + 1], data[data.index(b"\n") + 33 :]
    size = int.from_bytes(rest[:8], "little")
    first, *lines = rest[8 : 8 + size].decode().split("\n")
    known = {
        key: value
        for key, value in json.loads(first).items()
        if key not in ("content", "waiting", "begun")
    }
    text = "\n".join([json.dumps(known), *lines]).encode()
    body = len(text).to_bytes(8, "little") + text + rest[8 + size :]
    return magic + sha256(body).digest() + body


@pytest.mark.parametrize("group", ["run/iteration 3", "x/iteration 0", "run/a/iteration 12"])
def test_no_group_has_the_name_of_an_iteration(group: str) -> None:
    with pytest.raises(BadWork, match="name of an iteration"):
        check_work(GroupWork(group=group, step=0))


@pytest.mark.parametrize(
    "text", ["", "run", ".3", "run.", "run.-1", "run.1e3", "a/b.1", "run.٣", "x" * 300 + ".1"]
)
def test_what_names_no_iteration_is_refused(text: str) -> None:
    with pytest.raises(BadWork, match=r"write RUN\.STEP"):
        wire.iteration(text)


def test_calls_of_a_tool_that_nobody_registers_are_no_nodes_calls() -> None:
    memory = Memory(VolatileLog(), hashing)
    memory.merge_group(work("g0", tool("f", "a tool that is there already")))
    memory.begin(of(1))
    used = {"f": calls(5)}
    rollouts = (
        rollout("t0", tool("best", "a tool of the best")),
        rollout("t1", tool("f", "a namesake that does another thing"), used=used),
        rollout("t2", used={"f": calls(2, 1)}),
    )
    memory.merge_group(
        GroupWork(group="run/g1", step=1, rollouts=rollouts, registers="t0", iteration=of(1))
    )
    memory.begin(of(2))
    node = memory.graph.node("f")
    assert node is not None and (node.stats.calls, node.stats.successes) == (2, 1)
