"""The final answer in what a policy wrote."""

from __future__ import annotations

import time

import pytest

from tasks.judging.extract import final_answer, hash_number, last_block


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("<answer> Paris </answer>", "Paris"),
        ("<answer>a</answer> no: <answer>b</answer>", "b"),
        ("<answer>a</answer> and then <answer>cut off", "a"),
        ("<answer>an <answer>inner</answer>", "inner"),
        ("<answer>one\r\ntwo</answer>", "one\r\ntwo"),
        ("<answer>5</answer> so </answer>", "5"),
        ("<answer>5</answer> </answer> <answer>6", "5"),
        ("</answer><answer>", None),
        ("no tag", None),
        ("", None),
    ],
)
def test_the_last_complete_block_counts(text: str, found: str | None) -> None:
    assert last_block(text) == found


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("so 3 + 4 = 7\n#### 7", "7"),
        ("#### 1\n#### $1,234.50", "1234.50"),
        ("#### -5 apples", "-5"),
        ("#### \u22125", "-5"),
        ("#### 1/2 of it", "1/2"),
        ("#### 5e-3", "5e-3"),
        ("#### 5 each", "5"),
        ("#### 5eggs", "5"),
        ("#### .5", ".5"),
        ("####\nlater", None),
        ("#### none", None),
        ("7", None),
    ],
)
def test_the_number_behind_the_hashes(text: str, found: str | None) -> None:
    assert hash_number(text) == found


def test_a_box_in_the_answer_is_preferred_and_a_box_elsewhere_is_not() -> None:
    assert final_answer(r"\boxed{1} <answer>it is \boxed{2}</answer>") == "2"
    assert final_answer(r"\boxed{1} <answer>two</answer>") == "two"
    assert final_answer(r"so \boxed{1}") == "1"
    assert final_answer("nothing") is None


@pytest.mark.parametrize(
    "text",
    ["{" * 300_000, r"\boxed{" * 50_000, "<answer>" * 50_000, "####" * 100_000, "\\" * 300_001],
)
def test_hostile_texts_take_linear_time(text: str) -> None:
    started = time.process_time()
    final_answer(text), hash_number(text)
    assert time.process_time() - started < 5
