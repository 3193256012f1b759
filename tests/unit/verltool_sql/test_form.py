"""The form of an SQL agent's turns."""

from __future__ import annotations

import pytest

from tests.support.linear import assert_linear
from tests.support.recipes import Part
from tests.unit.verltool_sql.conftest import query, solution

BARE = "<solution>SELECT 1</solution>"


@pytest.mark.parametrize(
    "texts",
    [
        [solution()],
        [query(), solution()],
        [query()] * 5 + [solution()],
        ["\n<think>\na < b\n</think>\n\n<solution>\nSELECT 1 < 2\n</solution>\n"],
    ],
)
def test_it_holds(part: Part, texts: list[str]) -> None:
    assert part("form.well_formed")(texts)


@pytest.mark.parametrize(
    "texts",
    [
        [],
        [""],
        [query()],
        [solution(), solution()],
        [solution(), query(), solution()],
        ["<think>so</think>", solution()],
        [BARE],
        ["<think></think>" + BARE],
        ["<think>never closed" + BARE],
        ["first " + solution()],
        [solution() + " and more"],
        [solution() + "<|im_end|>"],
        [solution(" ")],
        [query() + solution()],
        [solution("<sql>SELECT 1")],
        [solution("SELECT '<think>'")],
        ["<think>a<think>b</think>" + BARE],
        ["<think>a</think><think>b</think>" + BARE],
        ["<think>SELECT</think><answer>1</answer>"],
        ["<think>a</think><SOLUTION>SELECT 1</SOLUTION>"],
    ],
)
def test_it_is_broken(part: Part, texts: list[str]) -> None:
    assert not part("form.well_formed")(texts)


def test_thoughts_may_be_left_out_where_the_recipe_says_so(part: Part) -> None:
    well_formed = part("form.well_formed")
    assert well_formed([BARE], think=False)
    assert well_formed([solution()], think=False)
    assert not well_formed(["<think>a" + BARE], think=False)


def test_it_is_found_in_linear_time(part: Part) -> None:
    for before in ("", "<think>", "<think>a</think><sql>", "<think>a</think><solution>"):
        assert_linear(part("form.block_of"), before)
