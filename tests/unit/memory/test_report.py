"""Figures of a memory's growth, and its drawing."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory.graph.graph import EMPTY
from memory.memory import Memory
from memory.report.drawing import part_of
from memory.report.growth import MOST_ROWS, Growth, growth, row_ends
from memory.report.page import render
from memory.search.embedding import hashing
from memory.store.volatile import VolatileLog
from tests.support.stills import data_of
from tests.support.tool_memory import registering, tool


def grown(steps: list[int], **parts: object) -> Growth:
    memory = Memory(VolatileLog(), hashing)
    for number, step in enumerate(steps):
        made = tool(f"t{number}", f"word{number} thing{number}")
        edges = ((f"t{number - 1}", f"t{number}", 1),) if number else ()
        memory.merge_group(
            registering(f"g{number}", made, edges=edges, step=step, counts={"created": 1}, **parts)
        )
    return growth(memory.changes)


@given(st.lists(st.integers(0, 10_000), max_size=600))
def test_rows_hold_every_step_once(steps: list[int]) -> None:
    ends = row_ends(steps)
    assert len(ends) <= MOST_ROWS
    assert all(one < other for one, other in pairwise(ends))
    assert (ends[-1] if ends else None) == max(steps, default=None)


def test_a_late_group_counts_where_it_came_in() -> None:
    found = grown([1, 3, 2, 3, 4])
    assert [(row.step, row.groups, row.nodes) for row in found.rows] == [
        (1, 1, 1),
        (3, 3, 4),
        (4, 1, 5),
    ]
    assert [row.components for row in found.rows] == [1, 1, 1]
    assert sum(row.created for row in found.rows) == 5


def test_a_training_that_begins_with_a_memory_is_counted_on() -> None:
    memory = Memory(VolatileLog(), hashing)
    for lineage, step in (("old", 0), ("old", 60), ("new", 0), ("new", 3), ("old", 61)):
        memory.merge_group(registering(f"{lineage}/{step}", tool("t"), step=step))
    assert [(row.step, row.steps, row.groups) for row in growth(memory.changes).rows] == [
        (0, 1, 1),
        (60, 60, 2),
        (63, 3, 2),
    ]


def test_a_tool_that_was_merged_away_is_not_drawn() -> None:
    memory = Memory(VolatileLog(), hashing)
    for step, delta in enumerate((1.0, 1.0, 0.3)):
        made = tool(f"t{step}", f"area of a shape{step}")
        work = registering(f"g{step}", made, delta=delta, mode="union_find", step=step)
        memory.merge_group(work)
    found = growth(memory.changes)
    assert [row.nodes for row in found.rows] == [1, 2, 1]
    graphs = next(
        block["graphs"]
        for block in data_of(render(found, store="x"))["blocks"]
        if block["kind"] == "graphs"
    )
    names = [[node["name"] for node in graph["nodes"]] for graph in graphs]
    assert names[-1] and "t1" not in names[-1]
    assert part_of(EMPTY) == []


@pytest.mark.parametrize("steps", [[], [0], [5, 5]])
def test_a_small_memory_has_a_page(steps: list[int]) -> None:
    page = render(grown(steps), store="<b>")
    assert "<b> " not in page
    data_of(page)
