"""Estimates, by hand and against brute force."""

from __future__ import annotations

import itertools
import math

import pytest

from tasks.errors import TaskFault
from tasks.judging.estimates import (
    average_ranks,
    avg_at_k,
    difference,
    mean,
    mean_pass_at_k,
    pass_at_k,
    permutation_test,
    ranks,
    sign_test,
)


@pytest.mark.parametrize(
    ("n", "c", "k"), [(5, 2, 1), (5, 2, 3), (10, 0, 4), (10, 10, 4), (6, 4, 6)]
)
def test_pass_at_k_is_the_share_of_draws_with_a_right_answer(n: int, c: int, k: int) -> None:
    answers = [1] * c + [0] * (n - c)
    draws = list(itertools.combinations(answers, k))
    assert pass_at_k(n, c, k) == pytest.approx(sum(map(max, draws)) / len(draws))


@pytest.mark.parametrize(("n", "c", "k"), [(4, 1, 5), (4, 5, 1), (4, -1, 1), (4, 1, 0), (0, 0, 1)])
def test_pass_at_k_of_what_was_not_drawn(n: int, c: int, k: int) -> None:
    with pytest.raises(TaskFault, match=f"pass@{k}"):
        pass_at_k(n, c, k)


def test_the_error_of_a_proportion() -> None:
    found = mean([1.0] * 67 + [0.0] * 133)
    assert found.mean == 0.335
    assert found.error == pytest.approx(math.sqrt(0.335 * 0.665 / 200))
    assert mean([]).questions == 0
    assert mean([]).error == 0


def test_answers_to_one_question_do_not_make_it_surer() -> None:
    once = avg_at_k([[1.0], [0.0], [1.0], [0.0]])
    often = avg_at_k([[1.0] * 8, [0.0] * 8, [1.0] * 8, [0.0] * 8])
    assert often.mean == once.mean == 0.5
    assert often.error == pytest.approx(once.error) == pytest.approx(0.25)
    mixed = avg_at_k([[1, 0, 1, 0]] * 4)
    assert mixed.error == pytest.approx(0)
    uneven = avg_at_k([[1.0, 1.0, 1.0], [0.0], []])
    assert uneven.mean == 0.75
    assert uneven.questions == 2
    assert mean_pass_at_k([[1, 0], [0, 0], []], 2).mean == 0.5
    assert avg_at_k([]).mean == 0


def test_equal_scores_share_the_best_rank() -> None:
    assert ranks({"a": 0.5, "b": 0.7, "c": 0.5, "d": 0.1}) == {"a": 2, "b": 1, "c": 2, "d": 4}


def test_the_average_ranks_of_searl() -> None:
    systems = ("searl", "grpo", "dapo", "reinforce_pp", "arpo", "prompting")
    scores = {
        "gsm8k": (0.8620, 0.8870, 0.8059, 0.8658, 0.8241, 0.2259),
        "math500": (0.6820, 0.7360, 0.5520, 0.6800, 0.6480, 0.0540),
        "aime24": (0.3333, 0.1333, 0.1333, 0.1000, 0.3333, 0.0),
        "hotpotqa": (0.3350, 0.2150, 0.3350, 0.1100, 0.1400, 0.2300),
        "2wiki": (0.3600, 0.3450, 0.3500, 0.2600, 0.2200, 0.1250),
        "musique": (0.0900, 0.0900, 0.0650, 0.0000, 0.0650, 0.0350),
        "bamboogle": (0.3040, 0.1600, 0.2480, 0.0080, 0.1760, 0.1200),
    }
    found = average_ranks([dict(zip(systems, row, strict=True)) for row in scores.values()])
    assert [round(found[name], 2) for name in ("searl", "grpo", "dapo")] == [1.43, 2.43, 3.0]
    assert sorted(round(rank, 2) for rank in found.values()) == [1.43, 2.43, 3.0, 3.57, 4.57, 5.29]
    with pytest.raises(TaskFault, match="benchmark 1"):
        average_ranks([{"a": 1.0}, {"b": 1.0}])
    assert average_ranks([]) == {}


def test_the_permutation_test_is_exact() -> None:
    moved = [1.0, -0.5, 0.25, 0.75, 0.0, 1.0]
    sums = [
        abs(sum(sign * abs(step) for sign, step in zip(signs, moved, strict=True)))
        for signs in itertools.product((1, -1), repeat=len(moved))
    ]
    share = sum(one >= abs(sum(moved)) - 1e-9 for one in sums) / len(sums)
    assert permutation_test(moved) == pytest.approx(share)
    assert permutation_test([]) == 1
    assert permutation_test([0.0] * 5) == 1


def test_of_right_and_wrong_alone_both_tests_are_one() -> None:
    first = {f"q{n}": 1.0 for n in range(12)}
    second = {f"q{n}": float(n < 4) for n in range(13)}
    found = difference(first, second)
    assert (found.questions, found.better, found.worse) == (12, 8, 0)
    assert found.sign == pytest.approx(2 / 2**8)
    assert found.permutation == pytest.approx(found.sign)
    assert found.mean == pytest.approx(8 / 12)
    assert difference({}, {}).sign == 1


def test_many_different_steps_are_drawn_the_same_way_each_time() -> None:
    steps = [math.sin(n) for n in range(60)]
    assert permutation_test(steps, seed=1) == permutation_test(steps, seed=1)
    assert 0 < permutation_test([abs(step) for step in steps]) < 0.001
    assert 0.3 < permutation_test(steps) <= 1


def test_the_sign_test_of_many_questions() -> None:
    assert sign_test(0, 0) == 1
    assert sign_test(3000, 3000) == 1
    assert 0 < sign_test(2900, 3100) < 0.02
