"""Invariants of the credit of turns beyond the golden examples."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from learner.maths.branches import shared_mean
from learner.maths.turns import token_map
from tests.golden.published import whole_trajectory_credit
from toolwright.credit.turns import (
    joined_advantage,
    return_to_go,
    step_advantage,
    step_groups,
    turn_rewards,
)

turns = st.lists(
    st.tuples(st.integers(-4, 4).map(float), st.lists(st.sampled_from("xy"), max_size=2)),
    max_size=4,
)
trajectories = st.lists(turns, max_size=5)
stds: Any = st.sampled_from(["population", "sample", "none"])
singletons: Any = st.sampled_from(["zero", "raw", "batch"])


def advantages(made: Any, **options: Any) -> tuple[dict[Any, list[float]], list[list[float]]]:
    """(by group, by trajectory and turn) of trajectories of (return, labels)."""
    groups = step_groups([[labels for _, labels in own] for own in made])
    return step_advantage([[value for value, _ in own] for own in made], groups, **options)


def test_parts_of_no_turn_and_of_turns_that_were_not_are_left_out() -> None:
    parts = [(None, 8.0), (1, 1.0), (1, 0.5), (0, -2.0), (3, 4.0)]
    assert turn_rewards(3, parts) == [-2.0, 1.5, 0.0]
    assert turn_rewards(0, parts) == []


@given(trajectories, st.integers(-5, 5), stds)
def test_a_constant_in_all_returns_changes_nothing(made: Any, shift: int, std: Any) -> None:
    moved = [[(value + shift, labels) for value, labels in own] for own in made]
    for found, expected in zip(
        advantages(moved, std=std)[1], advantages(made, std=std)[1], strict=True
    ):
        assert found == pytest.approx(expected, abs=1e-9)


@given(trajectories, st.sampled_from([0.5, 4.0]), stds)
def test_scaling_returns_scales_only_without_std(made: Any, factor: float, std: Any) -> None:
    scaled = [[(value * factor, labels) for value, labels in own] for own in made]
    by = factor if std == "none" else 1.0
    for found, expected in zip(
        advantages(scaled, std=std)[1], advantages(made, std=std)[1], strict=True
    ):
        assert found == pytest.approx([value * by for value in expected], abs=1e-9)


@given(trajectories)
def test_the_turns_of_a_label_add_up_to_zero_and_have_size_one(made: Any) -> None:
    by_group, _ = advantages(made)
    for values in by_group.values():
        assert math.fsum(values) == pytest.approx(0, abs=1e-9)
        squares = math.fsum(value * value for value in values)
        assert squares == pytest.approx(len(values), abs=1e-9) or squares == 0


@given(trajectories, stds, singletons)
def test_a_turn_without_a_label_has_no_term(made: Any, std: Any, singleton: Any) -> None:
    _, steps = advantages(made, std=std, singleton=singleton)
    for own, values in zip(made, steps, strict=True):
        assert len(values) == len(own)
        for (_, labels), value in zip(own, values, strict=True):
            assert labels or value == 0.0


def test_lone_turns() -> None:
    made = [[(0.25, ["x"]), (0.75, ["y"])], [(0.5, ["y"])]]
    assert advantages(made, singleton="zero")[1] == [[0.0, 1.0], [-1.0]]
    assert advantages(made, singleton="raw")[1] == [[0.25, 1.0], [-1.0]]
    # Of all three turns: mean 0.5, deviation sqrt(1 / 24).
    (first, _), _ = advantages(made, singleton="batch")[1]
    assert first == pytest.approx(-0.25 * math.sqrt(24))


def test_several_labels_and_one_that_stands_twice() -> None:
    made = [[(1.0, ["x", "y", "x"])], [(0.0, ["x"])], [(0.0, ["y"])]]
    assert advantages(made)[1] == [[1.0], [-1.0], [-1.0]]
    assert advantages(made, several="sum")[1] == [[2.0], [-1.0], [-1.0]]


def test_one_broken_return_breaks_its_own_turn() -> None:
    made = [[(math.nan, ["x"])], [(1.0, ["x"])], [(0.0, ["x"])]]
    for singleton in ("zero", "batch"):
        _, ((broken,), (one,), (zero,)) = advantages(made, singleton=singleton)
        assert math.isnan(broken)
        assert (one, zero) == (1.0, -1.0)


@given(st.lists(st.integers(-4, 4).map(float), max_size=6), st.sampled_from([0.0, 0.5, 1.0]))
def test_a_return_is_what_comes_discounted(rewards: list[float], gamma: float) -> None:
    direct = [
        sum(r * gamma**ahead for ahead, r in enumerate(rewards[turn:]))
        for turn in range(len(rewards))
    ]
    assert return_to_go(rewards, gamma) == pytest.approx(direct)


@given(st.lists(st.floats(-2, 2), max_size=3), st.integers(0, 12), st.floats(-2, 2))
def test_tokens_outside_of_actions_have_nothing(
    steps: list[float], length: int, episode: float
) -> None:
    spans = [(0, 1, 3), (1, 5, 6), (2, 8, 20)]
    found = token_map(episode, steps, spans, length, 1.0)
    assert found.shape == (length,)
    for place in range(length):
        turn = next((turn for turn, start, end in spans if start <= place < end), None)
        step = 0.0 if turn is None or turn >= len(steps) else steps[turn]
        assert found[place] == (0.0 if turn is None else episode + step)
    assert np.array_equal(token_map(np.full(length, episode), steps, spans, length, 1.0), found)


paths = st.lists(st.lists(st.sampled_from("ab"), max_size=5), max_size=5)


@given(paths, st.randoms(use_true_random=False))
def test_sharing_keeps_the_sum_and_gives_equal_prefixes_equal_values(
    made: list[list[str]], random: Any
) -> None:
    values = [[float(random.randint(-3, 3)) for _ in path] for path in made]
    shared = shared_mean(made, values)
    assert math.fsum(map(math.fsum, shared)) == pytest.approx(
        math.fsum(map(math.fsum, values)), abs=1e-9
    )
    for i, first in enumerate(made):
        for j, second in enumerate(made):
            for place, (one, other) in enumerate(zip(first, second, strict=False)):
                if one != other:
                    break
                assert shared[i][place] == shared[j][place]


def test_nothing_gives_nothing() -> None:
    assert step_groups([]) == {}
    assert step_advantage([], {}, singleton="batch") == ({}, [])
    assert step_advantage([[], []], {}, singleton="batch") == ({}, [[], []])
    assert return_to_go([], 0.5) == []
    assert return_to_go([0.1, None, -0.1], 0.5) == return_to_go([0.1, 0.0, -0.1], 0.5)
    assert return_to_go([None], 1.0) == [0.0]
    assert shared_mean([], []) == []
    assert whole_trajectory_credit([], [], [], padded_turns=6, gamma=0.5, lam=1.0) == []


def test_in_published_code_what_is_connected_through_others_is_one_part() -> None:
    anchors = [[["x"]], [["y"]], [["x"], ["y"]]]
    found = whole_trajectory_credit(
        [0.0] * 3, [[0.6], [0.0], [0.0]], anchors, padded_turns=2, gamma=0.5, lam=1.0
    )
    assert found == pytest.approx([0.2, -0.1, -0.1])


def test_trajectories_that_share_a_label_through_others_are_joined() -> None:
    rewards = [[6.0], [12.0], [0.0], [3.0]]
    labels = [[["a"]], [["a", "b"]], [["b"]], [["alone"]]]
    found = joined_advantage(rewards, labels, discount=0.5, padded_turns=6)
    assert found == pytest.approx([0.0, 1.0, -1.0, 0.0])


def test_a_member_outside_of_the_baseline_is_compared_and_not_compared_with() -> None:
    inside = [True, True, False]
    found = joined_advantage(
        [[6.0], [12.0], [30.0]], [[["a"]]] * 3, discount=0.5, in_baseline=inside
    )
    assert found == pytest.approx([-0.5, 0.5, 3.5])
    lone = joined_advantage([[6.0], [12.0]], [[["a"]]] * 2, discount=0.5, in_baseline=[True, False])
    assert lone == [0.0, 0.0]


@given(st.lists(st.lists(st.integers(-4, 4).map(float), max_size=9), max_size=5))
def test_terms_of_joined_trajectories_sum_to_nothing(rewards: list[list[float]]) -> None:
    labels: Any = [[["plan"], *[[]] * (len(own) - 1)] if own else [["plan"]] for own in rewards]
    assert sum(joined_advantage(rewards, labels, discount=0.5)) == pytest.approx(0, abs=1e-9)
