import pytest

from toolsvc.backends.budget import Budget, BudgetSpent


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
