"""A curve as one number, and several as one curve."""

from __future__ import annotations

import pytest

from console.ablate.results.curves import beginning, end, height, reached, together


def curve(*values: float, first: int = 1) -> list[tuple[float, float]]:
    return [(float(step), value) for step, value in enumerate(values, first)]


def test_who_learns_earlier_has_the_larger_area_at_the_same_end() -> None:
    early, late = curve(0, 0.8, 1, 1, 1), curve(0, 0, 0, 0.5, 1)
    assert end(early) == end(late) == 1
    assert height(early) == pytest.approx((0.4 + 0.9 + 1 + 1) / 4)
    assert height(late) == pytest.approx((0 + 0 + 0.25 + 0.75) / 4)


def test_a_step_that_is_missing_is_bridged_and_not_taken_for_nothing() -> None:
    assert height([(1.0, 1.0), (2.0, 1.0), (9.0, 1.0)]) == pytest.approx(1.0)
    assert height([(1.0, 0.0), (3.0, 1.0)]) == pytest.approx(0.5)


def test_no_point_and_one_point() -> None:
    for of in (height, end, beginning):
        assert of([]) is None
        assert of([(3.0, 0.25)]) == 0.25
    assert reached([], 0.0) is None
    assert reached([(3.0, 0.25)], 0.2) == 3
    assert together([]) == []


def test_ends_are_means_of_a_fifth() -> None:
    of = curve(*range(10))
    assert (beginning(of), end(of)) == (0.5, 8.5)


def test_a_lucky_step_reaches_nothing() -> None:
    lucky = curve(1, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1)
    assert reached(lucky, 0.9) == 11
    assert reached(lucky, 0.6) == 9
    assert reached(lucky, 1.1) is None
    # The first steps are no mean of five.
    assert reached(curve(1, 1, 1, 1, 1), 0.9) == 5


def test_curves_are_put_together_at_the_steps_that_all_have() -> None:
    found = together([curve(0, 1, 2), curve(2, 3, first=2)])
    assert found == [(2.0, 1.5, 0.5), (3.0, 2.5, 0.5)]
    assert together([curve(1, 2)]) == [(1.0, 1.0, 0.0), (2.0, 2.0, 0.0)]
