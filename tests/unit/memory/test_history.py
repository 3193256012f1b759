"""Any version from any snapshot is the fold of the whole log, bit for bit; so are its answers."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memory import history
from memory.errors import Unusable
from memory.memory import Memory
from memory.search.embedding import hashing
from memory.store.volatile import VolatileLog
from memory.types import GroupWork
from tests.support.tool_memory import calls, registering, tool, without_snapshots

WORDS = ["count", "words", "letters", "text", "circle", "area", "draw", "solve", "roots", "of"]

TEXTS = st.lists(st.sampled_from(WORDS), min_size=1, max_size=4).map(" ".join)
WORKS = st.lists(
    st.tuples(
        st.lists(TEXTS, max_size=3),
        st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=3),
        st.sampled_from(["greedy", "union_find"]),
        st.sampled_from(["first", "higher_support", "higher_success"]),
        st.sampled_from([0.5, 0.88]),
    ),
    min_size=1,
    max_size=8,
)


def works(drawn: list[Any]) -> list[GroupWork]:
    found, names = [], []
    for number, (texts, edges, mode, prefer, delta) in enumerate(drawn):
        made = [tool(f"g{number}_{place}", text) for place, text in enumerate(texts)]
        names += [one.name for one in made]
        known = dict(enumerate(names))
        found.append(
            registering(
                f"g{number}",
                *made,
                edges=tuple((known.get(a, "x"), known.get(b, "y"), 1) for a, b in edges),
                used={known[a]: calls(a + 1, b % (a + 1)) for a, b in edges if a in known},
                mode=mode,
                prefer=prefer,
                delta=delta,
                step=number,
            )
        )
    return found


def answers(memory: Memory, version: int | None = None) -> list[Any]:
    return [
        [(one.node, one.score) for one in memory.retrieve([text], version=version, **how)]
        for text in ("count the words", "area circle", "quadratic roots equation")
        for how in ({}, {"scoring": "graphrag"})
    ]


def same(one: Any, other: Any) -> None:
    assert one.vectors.tobytes() == other.vectors.tobytes()
    assert (one.by_id, one.names, one.edges) == (other.by_id, other.names, other.edges)
    assert (one.neighbours, one.apart) == (other.neighbours, other.apart)
    assert list(one.by_id) == list(other.by_id), "their order, too"


@settings(max_examples=40, deadline=None)
@given(drawn=WORKS, every=st.integers(1, 4), data=st.data())
def test_a_snapshot_and_the_rest_are_the_whole_fold(
    drawn: list[Any], every: int, data: st.DataObject
) -> None:
    log = VolatileLog()
    memory = Memory(log, hashing)
    for number, work in enumerate(works(drawn)):
        memory.merge_group(work)
        if number % every == 0:
            memory._history._save()
    whole = Memory(without_snapshots(log), hashing)
    resumed = Memory(log, hashing)
    same(whole.graph, memory.graph)
    same(whole.graph, resumed.graph)
    assert answers(whole) == answers(memory) == answers(resumed)
    version = data.draw(st.integers(0, whole.graph.version))
    same(whole.at(version), resumed.at(version))
    assert answers(whole, version) == answers(resumed, version) == answers(memory, version)


@pytest.fixture
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """A snapshot at every merge."""
    monkeypatch.setattr(history, "due", lambda since, saved: True)


def filled(log: VolatileLog, count: int = 6) -> Memory:
    memory = Memory(log, hashing)
    for number in range(count):
        memory.merge_group(registering(f"g{number}", tool(f"t{number}", WORDS[number])))
    return memory


@pytest.mark.usefixtures("often")
@pytest.mark.parametrize("keep", [0, 5, 40, 100, -1])
def test_a_torn_snapshot_is_passed_over(keep: int) -> None:
    log = VolatileLog()
    memory = filled(log)
    data = log.snapshot(6)
    log.keep(6, data[:keep])
    same(Memory(log, hashing).graph, memory.graph)
    flipped = bytearray(data)
    flipped[keep] ^= 1
    log.keep(6, bytes(flipped))
    same(Memory(log, hashing).graph, memory.graph)


@pytest.mark.usefixtures("often")
def test_a_snapshot_of_another_log_is_passed_over() -> None:
    log, other = VolatileLog(), VolatileLog()
    filled(other, 5)
    memory = Memory(log, hashing)
    for number in range(6):
        memory.merge_group(registering(f"h{number}", tool(f"u{number}", WORDS[-number])))
    for version in log.snapshots(9):
        log.keep(version, other.snapshot(min(version, 5)) or b"")
    log.keep(77, log.snapshot(5) or b"")  # newer than the log: a Redis that lost its last second
    same(Memory(log, hashing).graph, memory.graph)


def test_a_store_that_takes_no_snapshot_takes_the_change(
    monkeypatch: pytest.MonkeyPatch, often: None, caplog: pytest.LogCaptureFixture
) -> None:
    log = VolatileLog()

    def full(version: int, snapshot: bytes) -> None:
        raise Unusable("the disk is full")

    monkeypatch.setattr(log, "keep", full)
    assert filled(log).graph.version == 6
    assert "no snapshot of version 6: the disk is full" in caplog.text


def test_snapshots_together_are_no_longer_than_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "LEAST", 3000)
    log = VolatileLog()
    filled(log)
    for number in range(300):
        memory = Memory(log, hashing)
        memory.merge_group(registering(f"x{number}", tool(f"x{number}", f"number{number}")))
    sizes = [len(log.snapshot(version) or b"") for version in log.snapshots(1000)]
    assert 1 < len(sizes) < 40
    assert sum(sizes) < 1.5 * sum(len(data) for data in log.read(0, 1000))
