"""Options of `engine sample`: budgets, costs, the time that is left, criteria."""

from __future__ import annotations

import pytest

from engine.errors import StartupError
from engine.offline.collect.budget import Budget, Spending, seconds_remaining
from engine.offline.collect.criteria import parse_criteria
from engine.offline.prices import Prices


def test_another_task_is_begun_where_the_mean_of_all_in_hand_fits() -> None:
    budget = Budget(tokens=1000)
    assert budget.has_room(Spending(), 50)  # nothing tells what a task costs
    spent = Spending(tasks=4, tokens=400)
    assert budget.has_room(spent, 5)
    assert not budget.has_room(spent, 6)
    assert not budget.has_room(Spending(tasks=10, tokens=1000), 0)
    assert not budget.has_room(Spending(tasks=1, tokens=1001), 0)
    assert Budget().has_room(Spending(tasks=1, tokens=10**12), 10**6)


def test_time_left_is_that_of_whatever_ends_first() -> None:
    begun = Spending(tasks=100, tokens=5000, seconds=50.0)
    now = Spending(tasks=110, tokens=6000, seconds=60.0)
    assert seconds_remaining(now, begun, 160, Budget()) == pytest.approx(50.0)
    assert seconds_remaining(now, begun, 160, Budget(seconds=70.0)) == pytest.approx(10.0)
    assert seconds_remaining(now, begun, 160, Budget(tokens=6500)) == pytest.approx(5.0)
    assert seconds_remaining(now, begun, 160, Budget(tokens=5500)) == 0.0
    assert seconds_remaining(begun, begun, 160, Budget()) is None
    assert seconds_remaining(begun, begun, 160, Budget(seconds=40.0)) == 0.0


def test_a_price_that_was_not_given_is_none_and_not_nothing() -> None:
    assert Prices().cost(10**6, 10**6) is None
    assert Prices(read=0.0).cost(10**6, 10**6) == 0.0
    assert Prices(read=0.5, written=2.0).cost(2_000_000, 250_000) == pytest.approx(1.5)


@pytest.mark.parametrize(
    ("given", "found"),
    [
        (["./a.py:right"], {"right": "./a.py:right"}),
        (
            ["engine.offline.collect.criteria:rewarded"],
            {"rewarded": "engine.offline.collect.criteria:rewarded"},
        ),
        (["one=./a.py:f", "two=./b.py:f"], {"one": "./a.py:f", "two": "./b.py:f"}),
        (["./a=b.py:f"], {"f": "./a=b.py:f"}),
        (["x=./a=b.py:f"], {"x": "./a=b.py:f"}),
        ([], {}),
    ],
)
def test_a_criterion_is_called_by_its_name_or_its_function(
    given: list[str], found: dict[str, str]
) -> None:
    assert parse_criteria(given) == found
    assert list(parse_criteria(given)) == list(found)


@pytest.mark.parametrize("given", [["./a.py:f", "./b.py:f"], ["f=./a.py:g", "./b.py:f"]])
def test_two_of_one_name_are_refused(given: list[str]) -> None:
    with pytest.raises(StartupError, match="are both called 'f': name them, --keep NAME="):
        parse_criteria(given)
