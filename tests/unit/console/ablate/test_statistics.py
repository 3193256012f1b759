"""What seeds say: right numbers, and nothing that they do not say."""

from __future__ import annotations

import math

import pytest

from console.ablate.results.statistics import Against, difference
from toolwright.statistics import mean_of

NAN = float("nan")


def by_seed(*values: float) -> dict[int, float]:
    return dict(enumerate(values, 1))


def test_what_the_seeds_share_cancels() -> None:
    """Seeds differ by 0.5, the variation by 0.1 within each."""
    base, ours = by_seed(0.1, 0.6, 0.3), by_seed(0.2, 0.7, 0.401)
    found = difference(ours, base)
    assert found.mean == pytest.approx(0.1003, abs=1e-4)
    assert found.stderr is not None and found.stderr < 0.001
    assert found.against is Against.HIGHER
    assert difference(base, ours).against is Against.LOWER


def test_three_seeds_need_more_than_two_standard_errors() -> None:
    """The mean is 3 standard errors from 0: not enough of 3 seeds, enough of 12."""
    steps = [-1.0, 0.0, 1.0]
    stderr = 1 / math.sqrt(3)
    three = difference(by_seed(*(3 * stderr + x for x in steps)), by_seed(0, 0, 0))
    assert three.stderr == pytest.approx(stderr)
    assert three.against is Against.NOISE
    many = [x * math.sqrt(44 / 12) for x in steps * 4]
    stderr = mean_of(many).stderr  # type: ignore[union-attr]
    assert stderr is not None
    twelve = difference(by_seed(*(3 * stderr + x for x in many)), by_seed(*([0.0] * 12)))
    assert twelve.against is Against.HIGHER


def test_seeds_that_agree_by_chance_do_not_beat_the_questions() -> None:
    """Three times 0.02 more, of scores that 100 questions know to 0.05 each."""
    ours, base = by_seed(0.52, 0.52, 0.52), by_seed(0.5, 0.5, 0.5)
    assert difference(ours, base).against is Against.HIGHER
    assert difference(ours, base, errors=[0.05] * 6).against is Against.NOISE
    assert difference(by_seed(0.9, 0.9, 0.9), base, errors=[0.05] * 6).against is Against.HIGHER


def test_only_seeds_that_both_have_are_compared() -> None:
    found = difference({1: 1.0, 2: 1.0, 3: NAN}, {2: 0.5, 3: 0.5, 4: 0.0})
    assert (found.mean, found.n, found.against) == (0.5, 1, Against.ONE_SEED)
    none = difference({1: 1.0}, {2: 1.0})
    assert (none.mean, none.stderr, none.n, none.against) == (None, None, 0, Against.NOTHING)


def test_nothing_is_concluded_of_the_runs_that_are_left() -> None:
    ours, base = by_seed(0.9, 0.91), by_seed(0.1, 0.11)
    found = difference(ours, base, complete=False)
    assert found.against is Against.INCOMPLETE
    assert found.mean == pytest.approx(0.8)
