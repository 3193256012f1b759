"""Which queries count, by both readings of the threshold."""

from __future__ import annotations

import time
from difflib import SequenceMatcher
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.recipes import Part

SHOWN = [
    "Director of Kati Patang",
    "Director of A Thief In The Dark",
    "Death date of Shakti Samanta",
    "Death date of Donald W. Thompson",
]
"""The queries of the paper's own showcase."""


def count(part: Part, queries: list[str], **settings: Any) -> int:
    return len(part("queries.atomic")(queries, part("queries.Atomic")(**settings)))


def test_the_two_readings_of_the_threshold(part: Part) -> None:
    assert count(part, SHOWN, similarity_threshold=0.3) == 2
    assert count(part, SHOWN, similarity_threshold=0.3, threshold_semantics="min_distance") == 4
    assert count(part, SHOWN, similarity_threshold=0.3, query_rule="printed") == 0
    assert (
        count(part, [SHOWN[0]] * 9, similarity_threshold=0.3, threshold_semantics="min_distance")
        == 1
    )


def test_the_new_query_comes_first(part: Part) -> None:
    """The ratio is not symmetric: 0.25 for (tide, diet), 0.5 for the reverse."""
    settings = {"l_min": 1, "similarity_threshold": 0.3}
    assert count(part, ["diet", "tide"], **settings) == 2
    assert count(part, ["tide", "diet"], **settings) == 1


def test_case_counts_unless_it_is_folded(part: Part) -> None:
    queries = ["who built the old bridge", "WHO BUILT THE OLD BRIDGE"]
    assert count(part, queries, similarity_threshold=0.7) == 2
    assert count(part, queries, similarity_threshold=0.7, casefold=True) == 1


@pytest.mark.parametrize(
    ("queries", "expected"),
    [
        ([], 0),
        (["", "  ", "\n"], 0),
        (["x" * 10], 1),
        (["x" * 9], 0),
        (["x" * 120], 1),
        (["x" * 121], 0),
        (["  " + "x" * 120 + "\r\n"], 1),
        (["é" * 10, "\U0001f600" * 10], 2),
    ],
)
def test_length_is_that_of_the_stripped_query(
    part: Part, queries: list[str], expected: int
) -> None:
    assert count(part, queries) == expected


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"l_min": 30, "l_max": 20}, "l_min <= l_max"),
        ({"l_max": 10_000}, "l_max"),
        ({"l_min": -1}, "l_min"),
        ({"similarity_threshold": 1.5}, "similarity_threshold"),
        ({"similarity_threshold": float("nan")}, "similarity_threshold"),
        ({"threshold_semantics": "ratio"}, "threshold_semantics"),
        ({"query_rule": "any"}, "query_rule"),
    ],
)
def test_bounds_that_make_no_sense_are_refused(
    part: Part, settings: dict[str, Any], words: str
) -> None:
    with pytest.raises(ValueError, match=words):
        part("queries.Atomic")(**settings)


@settings(max_examples=30)
@given(st.text(max_size=200), st.text(max_size=200))
def test_the_ratio_is_difflibs(part: Part, one: str, other: str) -> None:
    assert part("queries.ratio")(one, other) == SequenceMatcher(None, one, other, False).ratio()


@pytest.mark.parametrize("shape", ["a", "<search>"])
def test_hostile_queries_cost_little(part: Part, shape: str) -> None:
    queries = [(shape * (1 << 20))[: 1 << 20][k:] for k in range(9)]
    began = time.thread_time()
    count(part, queries)
    part("queries.pair_ratios")(queries[:4])
    longest = [(shape * 120)[:120][k:] for k in range(12)]
    count(
        part, longest, similarity_threshold=1.0
    )  # all are kept, and each is compared with all before it
    assert time.thread_time() - began < 20  # uncut it would be hours


def test_pair_ratios(part: Part) -> None:
    ratios = part("queries.pair_ratios")
    assert ratios([]) == ratios(["x"]) == []
    assert ratios(["diet", "tide"]) == [0.25]
    assert ratios(["a", "A", "b"]) == [0.0, 0.0, 0.0]
    assert ratios(["a", "A", "b"], part("queries.Atomic")(casefold=True)) == [1.0, 0.0, 0.0]
