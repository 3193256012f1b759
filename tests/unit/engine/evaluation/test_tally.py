"""Sums of an evaluation are those of a list of its rows."""

from __future__ import annotations

import math
from statistics import fmean, stdev
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from engine.serving.evaluation.tally import RowState, SuiteTally, state_of


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
