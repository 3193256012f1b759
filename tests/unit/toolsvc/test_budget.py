import pytest

from toolsvc.backends.budget import Budget, BudgetSpent


def test_requests_are_counted_whatever_came_of_them() -> None:
    budget = Budget(requests=2, tokens=None)
    for used in (0, 7):
        budget.reserve(100)
        budget.settle(100, used)
    with pytest.raises(BudgetSpent, match="2 requests is spent: raise budget_requests"):
        budget.reserve(1)
    assert (budget.requests, budget.tokens) == (2, 7)


def test_what_is_in_flight_is_reserved() -> None:
    budget = Budget(requests=None, tokens=100)
    budget.reserve(60)
    with pytest.raises(BudgetSpent, match="0 used, 60 reserved, 50 wanted"):
        budget.reserve(50)
    assert budget.requests == 1
    budget.settle(60, 30)
    budget.reserve(70)
    with pytest.raises(BudgetSpent):
        budget.reserve(1)


def test_without_bounds_nothing_is_refused() -> None:
    budget = Budget(requests=None, tokens=None)
    for _ in range(1000):
        budget.reserve(1 << 40)
