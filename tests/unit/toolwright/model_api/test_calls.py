"""Pieces of tool calls to calls: how servers number, name and repeat them."""

from __future__ import annotations

import time

import pytest

from engine.core.sampler.openai.calls import LONGEST_NAME, MOST_CALLS, CallPieces
from toolwright.model_api.deltas import CallPart
from toolwright.model_api.errors import WireError

pytestmark = pytest.mark.quick


def part(index: int | None, id: str, name: str, arguments: str) -> CallPart:
    return CallPart(index=index, id=id, name=name, arguments=arguments)


BOTH = [("one", '{"x": 1}'), ("two", '{"y": 2}')]
SAME = [("one", '{"x": 1}'), ("one", '{"x": 2}')]
ONE = [("one", '{"x": 1}')]
DEEP = '{"x": ["}", "\\\\", {"y": "\\"{"}]}'


@pytest.mark.parametrize(
    ("parts", "calls"),
    [
        # Every call has index 0, or none.
        ([part(0, "a", "one", '{"x": 1}'), part(0, "b", "two", '{"y": 2}')], BOTH),
        ([part(None, "a", "one", '{"x": 1}'), part(None, "b", "two", '{"y": 2}')], BOTH),
        ([part(None, "", "one", '{"x": 1}'), part(None, "", "two", '{"y": 2}')], BOTH),
        ([part(0, "", "one", '{"x": 1}'), part(0, "", "one", '{"x": 2}')], SAME),
        # One id for all calls.
        ([part(0, "c", "one", '{"x": 1}'), part(1, "c", "two", '{"y": 2}')], BOTH),
        ([part(0, "c", "one", '{"x": 1}'), part(0, "c", "one", '{"x": 2}')], SAME),
        # Pieces of two calls in turns, told apart by index or by id alone.
        ([part(0, "a", "one", '{"x"'), part(1, "b", "two", '{"y"'),
          part(0, "", "", ": 1}"), part(1, "", "", ": 2}")], BOTH),
        ([part(0, "a", "one", '{"x"'), part(0, "b", "two", '{"y"'),
          part(0, "a", "", ": 1}"), part(0, "b", "", ": 2}")], BOTH),
        # The name in every delta; with another id in each one that has none.
        ([part(0, "a", "one", '{"x"'), part(0, "a", "one", ": 1"), part(0, "a", "one", "}")], ONE),
        ([part(0, "", "one", '{"x"'), part(0, "", "one", ": 1"), part(0, "", "one", "}")], ONE),
        ([part(0, "a", "one", '{"x"'), part(0, "b", "", ": 1"), part(0, "c", "", "}")], ONE),
        # The name in pieces.
        ([part(0, "a", "o", ""), part(0, "a", "ne", ""), part(0, "a", "", '{"x": 1}')], ONE),
        # The whole call once more at the end; an empty object first.
        ([part(0, "a", "one", '{"x": 1}'), part(0, "a", "one", '{"x": 1}')], ONE),
        ([part(0, "a", "one", "{}"), part(0, "a", "", '{"x"'), part(0, "a", "", ": 1}")], ONE),
        # The order is the one of the indices.
        ([part(1, "b", "two", '{"y": 2}'), part(0, "a", "one", '{"x": 1}')], BOTH),
        ([part(0, "", "one", "")], [("one", "{}")]),
        ([part(0, "", "one", DEEP), part(0, "", "one", '{"x": 2}')],
         [("one", DEEP), ("one", '{"x": 2}')]),
    ],
)  # fmt: skip
def test_pieces_belong_to_calls(parts: list[CallPart], calls: list[tuple[str, str]]) -> None:
    found = CallPieces()
    for one in parts:
        found.add([one])
    assert found.whole() == calls


def test_a_list_without_numbers_is_a_list_of_calls() -> None:
    found = CallPieces()
    found.add([part(None, "", "one", ""), part(None, "", "one", "")])
    assert found.whole() == [("one", "{}"), ("one", "{}")]


def test_calls_and_names_are_bounded() -> None:
    many = [part(number, "", "one", "") for number in range(MOST_CALLS + 1)]
    with pytest.raises(WireError, match="more than"):
        CallPieces().add(many)
    with pytest.raises(WireError, match="name has more than"):
        CallPieces().add([part(0, "", "a" * (LONGEST_NAME + 1), "")])


def test_many_pieces_cost_linear_time() -> None:
    found = CallPieces()
    began = time.process_time()
    for number in range(100_000):
        found.add([part(0, str(number), "" if number else "one", '{"x'), part(0, "", "one", '"')])
    assert time.process_time() - began < 5.0  # joined anew for each piece: minutes
    assert len(found.whole()) == 1
