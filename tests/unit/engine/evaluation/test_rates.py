"""A rate of an evaluation is over what it is a share of, not over all trajectories."""

from __future__ import annotations

from typing import Any

import pytest

from engine.serving.evaluation.rates import MOST_RATES, Rates, rates_of
from engine.serving.evaluation.tally import SuiteTally
from tests.unit.engine.evaluation.test_tally import row
from toolwright.types import Event

pytestmark = pytest.mark.quick


def test_a_rate_is_the_sum_of_parts_over_the_sum_of_wholes() -> None:
    tally = SuiteTally()
    for pair in ([1, 4], [0, 0], [1, 1]):
        tally.add(row(1.0, rates={"malformed": pair}))
    tally.add(row(1.0))
    tally.add(row(0.0, errored="away", rates={"malformed": [9, 9]}))
    assert tally.summary()["rates"] == {"malformed": {"rate": 0.4, "of": 5.0}}


def test_a_rate_of_nothing_is_left_out() -> None:
    rates = Rates()
    rates.add({"recovered": [0, 0]})
    assert rates.shown() == {}
    assert "rates" not in SuiteTally(n=1).summary()


@pytest.mark.parametrize(
    ("value", "found"),
    [
        ([1, 2], [1.0, 2.0]),
        ((0.5, 1), [0.5, 1.0]),
        ([1], None),
        ([1, -1], None),
        ([1, float("nan")], None),
        ([float("inf"), 1], None),
        (["1", 2], None),
        (0.5, None),
        (None, None),
    ],
)
def test_an_entry_is_two_numbers(value: Any, found: list[float] | None) -> None:
    event = Event(kind="rates", turn=0, data={"a": value})
    assert rates_of([event, Event(kind="measured", turn=0, data={"b": [1, 1]})]) == (
        {} if found is None else {"a": found}
    )


def test_rates_are_bounded() -> None:
    event = Event(kind="rates", turn=0, data={f"r{n:04}": [1, 1] for n in range(999)})
    assert list(rates_of([event])) == [f"r{n:04}" for n in range(MOST_RATES)]
