"""Sums and rates of an evaluation are those of a list of its rows; of texts, both ends are kept."""

from __future__ import annotations

import math
from statistics import fmean, stdev
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.serving.evaluation.rates import MOST_RATES, Rates, rates_of, shares_of
from engine.serving.evaluation.results import cut_texts
from engine.serving.evaluation.tally import RowState, SuiteTally, state_of
from toolwright.types import Event


def row(reward: float, **fields: Any) -> dict[str, Any]:
    return {
        "reward": reward, "calls": 1, "response_tokens": 10, "masked": False,
        "stop_reason": "answered", "parts": {"correct": reward}, "errored": "", **fields,
    }  # fmt: skip


@given(st.lists(st.floats(-1e9, 1e9), min_size=2, max_size=50))
def test_mean_and_standard_error_are_those_of_the_list(rewards: list[float]) -> None:
    tally = SuiteTally()
    for reward in rewards:
        tally.add(row(reward))
    assert math.isclose(tally.mean, fmean(rewards), rel_tol=1e-9, abs_tol=1e-3)
    expected = stdev(rewards) / math.sqrt(len(rewards))
    assert math.isclose(tally.stderr, expected, rel_tol=1e-6, abs_tol=1e-3)


def test_a_large_common_reward_does_not_drown_the_spread() -> None:
    tally = SuiteTally()
    for reward in (1e9, 1e9 + 1, 1e9 + 2):
        tally.add(row(reward))
    assert math.isclose(tally.stderr, 1 / math.sqrt(3))


def test_errored_and_bad_rows_are_in_no_mean() -> None:
    tally = SuiteTally()
    for one in (row(1.0), row(0.0, errored="sampler away"), {"bad": "no prompt"}, row(0.5)):
        tally.add(one)
    told = tally.summary()
    assert (told["n"], told["reward"], told["errored"], told["bad_rows"]) == (2, 0.75, 1, 1)
    assert told["stops"] == {"answered": 2}
    assert told["parts"] == {"correct": 0.75}


def test_an_errored_row_that_is_run_again_counts_once() -> None:
    tally = SuiteTally()
    tally.add(row(0.0, errored="away"))
    tally.again()
    tally.add(row(1.0))
    assert (tally.errored, tally.n, tally.mean) == (0, 1, 1.0)


def test_one_row_has_no_standard_error() -> None:
    tally = SuiteTally()
    tally.add(row(3.0))
    assert (tally.stderr, SuiteTally().stderr) == (0.0, 0.0)


def test_a_wrong_answer_is_measured() -> None:
    assert state_of(row(0.0)) is RowState.MEASURED
    assert state_of(row(0.0, errored="x")) is RowState.ERRORED
    assert state_of({"bad": "x"}) is RowState.BAD


def test_a_rate_is_the_sum_of_parts_over_the_sum_of_wholes() -> None:
    tally = SuiteTally()
    for pair in ([1, 4], [0, 0], [1, 1]):
        tally.add(row(1.0, rates={"malformed": pair, "length": [8, 1]}, shares=["malformed"]))
    tally.add(row(1.0))
    tally.add(row(0.0, errored="away", rates={"malformed": [9, 9]}))
    assert tally.summary()["rates"] == {
        "malformed": {"rate": 0.4, "of": 5.0, "standard_error": pytest.approx(0.24), "share": True},
        "length": {"rate": 8.0, "of": 3.0, "standard_error": 0.0},
    }


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
    share = Event(kind="shares", turn=0, data={"a": value})
    assert shares_of([event, share]) == ([] if found is None else ["a"])
    assert rates_of([event, Event(kind="measured", turn=0, data={"b": [1, 1]})]) == (
        {} if found is None else {"a": found}
    )


def test_rates_are_bounded() -> None:
    event = Event(kind="rates", turn=0, data={f"r{n:04}": [1, 1] for n in range(999)})
    assert list(rates_of([event])) == [f"r{n:04}" for n in range(MOST_RATES)]


def segments(*lengths: int) -> list[dict[str, str]]:
    return [{"author": f"a{n}", "text": str(n) * length} for n, length in enumerate(lengths)]


def joined(found: list[dict[str, str]]) -> str:
    return "".join(one["text"] for one in found)


@pytest.mark.parametrize("lengths", [(), (0,), (4, 6), (10,), (1, 0, 9)])
def test_what_fits_stays(lengths: tuple[int, ...]) -> None:
    assert cut_texts(segments(*lengths), 10) == segments(*lengths)


@pytest.mark.parametrize(
    ("lengths", "text"),
    [
        ((11,), "00000[1 characters left out]00000"),
        ((5, 6), "00000[1 characters left out]11111"),
        ((3, 100, 3), "00011[96 characters left out]11222"),
        ((1, 1, 50, 50), "01222[92 characters left out]33333"),
        ((4, 20, 20, 4), "00001[38 characters left out]23333"),
    ],
)
def test_beginning_and_end_stay_of_what_does_not(lengths: tuple[int, ...], text: str) -> None:
    found = cut_texts(segments(*lengths), 10)
    assert joined(found) == text
    names = [one["author"] for one in found]
    assert names == sorted(names)
    assert (names[0], names[-1]) == ("a0", f"a{len(lengths) - 1}")
