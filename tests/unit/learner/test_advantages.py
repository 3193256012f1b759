"""Invariants of the estimators (spec 6.11: 1, 4, 5, 9) beyond the golden examples."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from learner.maths.advantages import group_advantage, opo, rloo
from learner.maths.returns import returns, whiten

rewards_and_groups = st.lists(
    st.tuples(st.integers(-3, 3).map(float), st.sampled_from("abc")), max_size=12
)
stds: Any = st.sampled_from(["population", "sample", "none"])


@given(rewards_and_groups, st.randoms(use_true_random=False), stds)
def test_permuting_trajectories_permutes_advantages(pairs: Any, random: Any, std: Any) -> None:
    order = list(range(len(pairs)))
    random.shuffle(order)
    rewards, groups = [r for r, _ in pairs], [g for _, g in pairs]
    straight = group_advantage(rewards, groups, std=std)
    shuffled = group_advantage([rewards[i] for i in order], [groups[i] for i in order], std=std)
    assert shuffled == pytest.approx([straight[i] for i in order], abs=1e-12)


@given(rewards_and_groups, st.integers(-5, 5), stds)
def test_a_constant_in_all_rewards_changes_nothing(pairs: Any, shift: int, std: Any) -> None:
    rewards, groups = [r for r, _ in pairs], [g for _, g in pairs]
    moved = group_advantage([r + shift for r in rewards], groups, std=std)
    assert moved == pytest.approx(group_advantage(rewards, groups, std=std), abs=1e-9)


@given(rewards_and_groups, st.sampled_from([0.5, 2.0, 10.0]), stds)
def test_scaling_rewards_scales_only_without_std(pairs: Any, factor: float, std: Any) -> None:
    rewards, groups = [r for r, _ in pairs], [g for _, g in pairs]
    plain = group_advantage(rewards, groups, std=std, eps=0.0)
    scaled = group_advantage([r * factor for r in rewards], groups, std=std, eps=0.0)
    by = factor if std == "none" else 1.0
    assert scaled == pytest.approx([value * by for value in plain], abs=1e-9)


@given(rewards_and_groups, stds)
def test_advantages_of_a_group_add_up_to_zero(pairs: Any, std: Any) -> None:
    rewards, groups = [r for r, _ in pairs], [g for _, g in pairs]
    values = group_advantage(rewards, groups, std=std)
    for group in set(groups):
        total = sum(v for v, g in zip(values, groups, strict=True) if g == group)
        assert math.isclose(total, 0.0, abs_tol=1e-9)


def test_rounding_in_a_constant_group_is_no_signal() -> None:
    third = 0.1 + 0.2
    assert group_advantage([third, 0.3, third], ["a"] * 3, eps=0.0) == [0.0, 0.0, 0.0]


def test_returns_step_over_observations() -> None:
    rewards = torch.tensor([[0.0, 0.0, 0.0, 1.0]])
    mask = torch.tensor([[1.0, 0.0, 1.0, 1.0]])
    assert returns(rewards, mask, gamma=0.5).tolist() == [[0.25, 0.0, 0.5, 1.0]]


def test_empty_input_is_legal_everywhere() -> None:
    assert group_advantage([], []) == []
    assert rloo([], []) == []
    assert opo([], [], []) == []
    nothing = torch.zeros(2, 3)
    assert not whiten(torch.ones(2, 3), nothing).any()
