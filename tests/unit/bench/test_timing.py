"""Delays repeat with their seed and keep the rate."""

from __future__ import annotations

import math
from itertools import islice

import pytest

from bench.scripted import Timing


def delays(timing: Timing, rid: str = "r", count: int = 1000) -> list[float]:
    return list(islice(timing.delays(rid), count))


def test_first_token_then_the_rate() -> None:
    timing = Timing(first_token_delay=0.5, tokens_per_second=50, tokens_per_chunk=2)
    assert delays(timing, count=4) == [0.5, 0.04, 0.04, 0.04]


def test_jitter_stays_in_its_bounds_and_keeps_the_mean() -> None:
    drawn = delays(Timing(tokens_per_second=50, jitter=0.5))[1:]
    assert all(0.01 <= delay <= 0.03 for delay in drawn)
    assert sum(drawn) / len(drawn) == pytest.approx(0.02, rel=0.05)


def test_jitter_repeats_per_seed_and_rid() -> None:
    timing = Timing(tokens_per_second=50, jitter=0.5)
    assert delays(timing) == delays(timing)
    assert delays(timing, "s") != delays(timing)
    assert delays(Timing(tokens_per_second=50, jitter=0.5, seed=1)) != delays(timing)


@pytest.mark.parametrize(
    "bad",
    [
        {"first_token_delay": -1.0},
        {"tokens_per_second": 0.0},
        {"tokens_per_second": math.nan},
        {"tokens_per_chunk": 0},
        {"jitter": 1.0},
    ],
)
def test_bad_values_are_named(bad: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=next(iter(bad))):
        Timing(**bad)  # type: ignore[arg-type]
