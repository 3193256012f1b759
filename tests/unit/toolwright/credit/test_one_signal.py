"""Advantages, dynamic sampling and metrics decide alike whether a group teaches anything."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.serving.admission.dynamic_sampling import dapo_filter
from toolwright.credit.advantages import group_advantage, opo, rloo
from toolwright.credit.signal import varies

pytestmark = pytest.mark.quick

CONSTANT = [
    [0.1 + 0.2, 0.3, 0.3],
    [0.3 - 0.1, 0.2],
    [1000.1 + 0.2, 1000.3, 1000.3],
    [1e6 + 0.1 + 0.2, 1e6 + 0.3],
    [sum([0.1] * 10), 1.0, 1.0, 1.0],
    [-0.0, 0.0],
]
DIFFERENT = [[0.0, 1.0], [0.3, 0.3 + 1e-9], [1e6, 1e6 + 1e-3], [1e-9, 2e-9], [5.0, math.nan]]


@pytest.mark.parametrize("rewards", CONSTANT)
def test_rounding_is_no_signal_anywhere(rewards: list[float]) -> None:
    groups = ["g"] * len(rewards)
    assert not varies(rewards)
    assert dapo_filter(zip(groups, rewards, strict=True)) == []
    assert not any(group_advantage(rewards, groups))
    assert not any(group_advantage(rewards, groups, std="none"))
    assert not any(rloo(rewards, groups))
    assert not any(opo(rewards, groups, [1, 2, 3, 4][: len(rewards)]))


@pytest.mark.parametrize("rewards", DIFFERENT)
def test_a_difference_is_a_signal_everywhere(rewards: list[float]) -> None:
    groups = ["g"] * len(rewards)
    assert varies(rewards)
    assert dapo_filter(zip(groups, rewards, strict=True)) == ["g"]
    assert any(value != 0 for value in group_advantage(rewards, groups, eps=0.0))


@given(st.lists(st.floats(-1e9, 1e9), min_size=2, max_size=8))
def test_a_kept_group_has_advantages_and_no_other_has(rewards: list[float]) -> None:
    groups = ["g"] * len(rewards)
    kept = bool(dapo_filter(zip(groups, rewards, strict=True)))
    for std in ("population", "sample", "none"):
        assert any(group_advantage(rewards, groups, std=std)) is kept  # type: ignore[arg-type]
