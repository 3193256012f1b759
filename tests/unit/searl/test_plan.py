"""The plan's grammar, asked what a policy of random weights or of ill will would write."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recipes.searl.plan import LONGEST, NoPlan, Plan, parse, whole_task

SECTIONS = "\n##ST1: one\n1. a\n##ST2: two\n1. b\n##ST3: three\n1) c"


def refused(text: str, most: int = 5, **settings: bool) -> str:
    with pytest.raises(NoPlan) as why:
        parse(text, most, **settings)
    return why.value.reason


@pytest.mark.parametrize(
    ("listed", "reason"),
    [
        ("", "bad_dag"),
        ("(ST1)", "bad_dag"),
        ("[(ST1)", "bad_dag"),
        ("[ST1]", "bad_dag"),
        ("[(ST1) (ST2)]", "bad_dag"),
        ("[((ST1))]", "bad_dag"),
        ("[]", "empty_dag"),
        ("[ ]", "empty_dag"),
        ("[()]", "bad_id"),
        ("[(,)]", "bad_id"),
        ("[(ST1, ST2, ST3)]", "bad_item"),
        ("[(ST1,,)]", "bad_id"),
        ("[(1, 2)]", "bad_id"),
        ("[(ST-1)]", "bad_id"),
        ("[(ST1.0)]", "bad_id"),
        (f"[(ST{'9' * 5000})]", "bad_id"),
        ("[(__import__('os'))]", "bad_dag"),
        ("[(ST1, ST_1)]", "self_loop"),
        ("[(ST9)]", "missing_section"),
        ("[(ST1, ST2), (ST2, ST3), (ST3, ST1)]", "cycle"),
    ],
)
def test_a_list_that_is_none(listed: str, reason: str) -> None:
    assert refused(f"##DAG_LIST\n{listed}{SECTIONS}") == reason


def test_the_first_reason_wins() -> None:
    text = "##DAG_LIST\n[(ST1, ST2), (ST2, ST1)]" + SECTIONS
    assert refused(text, most=2) == "too_many"
    assert refused(text + "\n##ST1: again\n1. d") == "duplicate_section"


@pytest.mark.parametrize("listed", ["[(ST1,)]", "[(st_1)]", "[ ( ST1 ) , ]", "[(ST1, ST2,)]"])
def test_what_the_prompt_does_not_show_and_the_grammar_allows(listed: str) -> None:
    assert parse(f"so:\n##DAG_LIST\n\n  {listed}{SECTIONS}", 5).nodes == (1, 2, 3)


def test_a_space_after_the_marks_and_no_colon() -> None:
    found = parse("##DAG_LIST\n[(ST1)]\n## ST_1 look it up\n  2) search\nprose\n3. check", 5)
    assert (found.titles, found.steps) == ({1: "look it up"}, {1: ("search", "check")})


def test_a_section_that_the_list_does_not_name() -> None:
    text = "##DAG_LIST\n[(ST1, ST2)]" + SECTIONS
    assert parse(text, 5).nodes == (1, 2, 3)
    assert refused(text, strict_sections=True) == "bad_dag"


def test_the_smallest_ready_subtask_comes_first() -> None:
    listed = "[(ST3, ST1), (ST2, ST1), (ST3, ST1)]"
    found = parse(f"##DAG_LIST\n{listed}{SECTIONS}", 5)
    assert (found.order, found.edges) == ((2, 3, 1), ((3, 1), (2, 1)))


def test_a_page_of_anything_costs_little() -> None:
    began = time.process_time()
    for piece in ("(", "(ST1),", "##ST1:x\n", "##DAG_LIST[", "1. a\n", " ", "]", "(ST1,ST2),"):
        text = "##DAG_LIST\n[" + piece * (2 * LONGEST // len(piece))
        refused(text + "]" + SECTIONS)
    assert time.process_time() - began < 5.0


@given(st.text(alphabet="##DAG_LIST[](),ST_123:\n. ab"))
def test_any_text_is_a_plan_or_is_refused(text: str) -> None:
    for whole in (text, "##DAG_LIST\n" + text, f"##DAG_LIST\n[(ST1)]\n{text}"):
        try:
            found = parse(whole, 5)
        except NoPlan:
            continue
        assert isinstance(found, Plan)
        assert sorted(found.order) == list(found.nodes)
        assert set(found.titles) == set(found.steps) == set(found.nodes)
        places = {node: place for place, node in enumerate(found.order)}
        assert all(places[one] < places[other] for one, other in found.edges)


def test_the_plan_that_stands_in_is_the_question() -> None:
    assert whole_task("why?").query(1) == "why?"
