"""Means, errors and tests are those of the books, and finite for whatever numbers there are."""

from __future__ import annotations

import math
from statistics import fmean, stdev

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolwright.statistics import (
    PERMUTED,
    Moments,
    Ratio,
    mcnemar,
    mean_of,
    normal,
    pass_at,
    share_error,
    sign_flips,
    student,
)

NAN, INF = float("nan"), float("inf")


def moments(values: list[float]) -> Moments:
    found = Moments()
    for value in values:
        found.add(value)
    return found


def test_mean_and_standard_error_are_those_of_the_books() -> None:
    found = mean_of([1.0, 2.0, 4.0])
    assert found is not None
    assert found.mean == pytest.approx(7 / 3)
    # Spread 1.5275 over the root of 3.
    assert found.stderr == pytest.approx(0.88192, abs=1e-5)
    assert found.n == 3


def test_one_value_has_no_error_and_none_has_no_mean() -> None:
    assert mean_of([]) is None
    assert mean_of([NAN, INF]) is None
    one = mean_of([0.5, NAN])
    assert one is not None and (one.mean, one.stderr, one.n) == (0.5, None, 1)


@given(st.lists(st.floats(allow_nan=True, allow_infinity=True), max_size=8))
def test_whatever_the_values_are_a_mean_is_finite(values: list[float]) -> None:
    found = mean_of(values)
    if found is not None:
        assert math.isfinite(found.mean)
        finite = [value for value in values if math.isfinite(value)]
        assert min(finite) - 1e-9 * abs(min(finite)) <= found.mean
        assert found.mean <= max(finite) + 1e-9 * abs(max(finite))


def test_the_quantiles_fall_to_the_normal_one_without_a_jump() -> None:
    found = [student(degrees) for degrees in range(1, 200)]
    assert found == sorted(found, reverse=True)
    assert found[29] - found[30] < 0.01
    assert 1.96 < found[-1] < 1.98


def test_a_share_has_the_error_of_a_share_and_other_scores_that_of_their_spread() -> None:
    """Spec 8: with 200 questions the standard error of .335 is 3.3 points."""
    assert share_error(0.335, 200) == pytest.approx(0.0334, abs=1e-4)
    assert moments([1.0, 0.0, 0.0, 1.0]).stderr == pytest.approx(math.sqrt(0.25 / 4))
    assert moments([1.0, 0.0, 0.5]).stderr == pytest.approx(stdev([1.0, 0.0, 0.5]) / math.sqrt(3))
    assert moments([1.0]).stderr is moments([0.0]).stderr is share_error(1.0, 1) is None
    assert (share_error(0.5, 0), Moments().stderr, moments([0.3]).stderr) == (None, None, None)


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=30), st.integers(0, 20))
def test_zeros_that_are_added_at_once_are_as_many_zeros(values: list[float], count: int) -> None:
    at_once, one_by_one = moments(values), moments([*values, *[0.0] * count])
    at_once.add_zeros(count)
    assert at_once.n == one_by_one.n
    assert at_once.mean == pytest.approx(one_by_one.mean, abs=1e-6)
    assert at_once.squares == pytest.approx(one_by_one.squares, rel=1e-6, abs=1e-2)
    assert at_once.mean == pytest.approx(fmean([*values, *[0.0] * count]), abs=1e-6)


def test_pass_at_k_is_that_of_the_paper() -> None:
    """Of 4 samples one is right: of the 6 pairs 3 hold it."""
    assert pass_at(4, 1, 1) == pytest.approx(0.25)
    assert pass_at(4, 1, 2) == pytest.approx(0.5)
    assert pass_at(4, 1, 4) == 1.0
    assert pass_at(4, 0, 4) == 0.0
    with pytest.raises(ValueError, match="pass@5"):
        pass_at(4, 1, 5)


PAIRS = st.tuples(st.integers(0, 9), st.integers(0, 9)).map(lambda one: (min(one), max(one)))


@given(st.lists(st.lists(PAIRS, min_size=1, max_size=3), min_size=1, max_size=9), st.integers(0, 9))
def test_a_ratio_is_the_linearised_one_of_clusters(
    clusters: list[list[tuple[int, int]]], cut: int
) -> None:
    """Whether clusters come in one ratio or in two that are joined."""
    halves = Ratio(), Ratio()
    for place, cluster in enumerate(clusters):
        part = whole = 0
        for one in cluster:
            halves[place < cut].add(*one, (part, whole))
            part, whole = part + one[0], whole + one[1]
    found, other = halves
    found.include(other)
    sums = [(sum(p for p, _ in one), sum(w for _, w in one)) for one in clusters]
    whole, counted = sum(w for _, w in sums), [one for one in sums if one[1]]
    if not whole:
        assert found.value is found.stderr is None
        return
    rate = sum(p for p, _ in sums) / whole
    assert found.value == pytest.approx(rate)
    n = len(counted)
    if n == 1:
        assert found.stderr is None
        return
    squares = math.fsum((p - rate * w) ** 2 for p, w in counted)
    assert found.stderr == pytest.approx(math.sqrt(squares * n / (n - 1)) / whole, abs=1e-7)


def test_a_ratio_of_answers_of_one_question_each_is_a_share() -> None:
    found = Ratio()
    for right in (1, 0, 0, 0, 1):
        found.add(right, 1)
    assert (found.n, found.value) == (5, 0.4)
    assert found.stderr == pytest.approx(stdev([1, 0, 0, 0, 1]) / math.sqrt(5))


def test_the_normal_p_of_a_difference() -> None:
    assert normal(1.96, 1.0) == normal(-1.96, 1.0) == pytest.approx(0.05, abs=1e-4)
    assert (normal(0.0, 0.0), normal(0.1, 0.0)) == (1.0, 0.0)


def test_mcnemar_is_the_binomial_of_a_fair_coin() -> None:
    assert mcnemar(0, 0) == 1.0
    assert mcnemar(5, 0) == pytest.approx(2 / 32)
    assert mcnemar(9, 1) == mcnemar(1, 9) == pytest.approx(2 * 11 / 1024)
    assert mcnemar(7, 7) == 1.0
    # Thousands of pairs: 3 standard deviations of a coin.
    assert mcnemar(10_150, 9_726) == pytest.approx(math.erfc(3.007 / math.sqrt(2)), rel=0.05)


def test_signs_that_are_drawn_anew_find_an_effect_and_no_effect() -> None:
    none = [0.5, -0.5] * 30
    assert sign_flips(none) > 0.9
    assert sign_flips([0.3] * 20) < 0.001
    assert sign_flips([0.3] * 3) == pytest.approx(0.25, abs=0.02)  # two of eight draws
    assert sign_flips([0.0] * 5) == sign_flips([]) == 1.0


@pytest.mark.parametrize("size", [3, PERMUTED + 1])
def test_differences_that_are_huge_or_equal_have_a_p(size: int) -> None:
    assert 0.0 <= sign_flips([1e308, -1e308, 1e308] * (size // 3)) <= 1.0
    assert 0.0 < sign_flips([1e-308] * size) <= 1.0


def test_many_differences_that_are_nearly_equal_have_a_small_p_and_no_root_of_rounding() -> None:
    near = [0.7, math.nextafter(0.7, 1.0)] * (PERMUTED + 1)
    assert 0.0 < sign_flips(near) < 1e-9
    # As many zeros again: a mean of 0.5 with a spread of 0.5, not one without a spread.
    halves = [0.001] * 50 + [0.0] * PERMUTED
    assert sign_flips(halves) == pytest.approx(math.erfc(7.15 / math.sqrt(2)), rel=0.1)
