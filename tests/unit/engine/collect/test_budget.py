"""Budgets, costs and the time that is left."""

from __future__ import annotations

import pytest

from engine.offline.collect.budget import Budget, Spending, seconds_remaining
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


def test_tokens_of_tasks_that_none_came_of_count_as_well() -> None:
    assert not Budget(tokens=10).has_room(Spending(tasks=0, tokens=10), 0)


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
