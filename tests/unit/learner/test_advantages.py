"""Invariants of the estimators beyond the golden examples."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from learner.maths.returns import reinforce_pp, returns, rfpp_baseline, whiten
from toolwright.credit.advantages import centred, group_advantage, opo, rloo

rewards_and_groups = st.lists(
    st.tuples(st.integers(-3, 3).map(float), st.sampled_from("abc")), max_size=12
)
stds: Any = st.sampled_from(["population", "sample", "none"])


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


def opo_of_lengths(rewards: Any, groups: Any, **options: Any) -> list[float]:
    return opo(rewards, groups, [int(10 * abs(r)) + 1 for r in rewards], **options)


def dr_grpo(rewards: Any, groups: Any, **options: Any) -> list[float]:
    return group_advantage(rewards, groups, std="none", **options)


baselines: Any = st.sampled_from([rloo, centred, opo_of_lengths, group_advantage, dr_grpo])


@given(rewards_and_groups, st.randoms(use_true_random=False), baselines)
def test_permuting_permutes_what_is_measured_against_a_baseline(
    pairs: Any, random: Any, estimator: Any
) -> None:
    order = list(range(len(pairs)))
    random.shuffle(order)
    rewards, groups = [r for r, _ in pairs], [g for _, g in pairs]
    straight = estimator(rewards, groups)
    shuffled = estimator([rewards[i] for i in order], [groups[i] for i in order])
    assert shuffled == pytest.approx([straight[i] for i in order], abs=1e-12)


@given(rewards_and_groups, st.integers(-5, 5), st.sampled_from([rloo, centred]))
def test_a_constant_changes_no_difference_to_a_baseline(
    pairs: Any, shift: int, estimator: Any
) -> None:
    """But that of a lone rollout, which has no baseline and keeps its reward."""
    rewards, groups = [r for r, _ in pairs], [g for _, g in pairs]
    moved = estimator([r + shift for r in rewards], groups)
    plain = estimator(rewards, groups)
    for group, new, old in zip(groups, moved, plain, strict=True):
        assert new == pytest.approx(old + (shift if groups.count(group) == 1 else 0), abs=1e-9)


@given(rewards_and_groups, st.sampled_from([0.5, 2.0, 10.0]), st.sampled_from([rloo, centred]))
def test_scaling_scales_the_difference_to_a_baseline(
    pairs: Any, factor: float, estimator: Any
) -> None:
    rewards, groups = [r for r, _ in pairs], [g for _, g in pairs]
    scaled = estimator([r * factor for r in rewards], groups)
    assert scaled == pytest.approx([v * factor for v in estimator(rewards, groups)], abs=1e-9)


@given(rewards_and_groups)
def test_leaving_one_out_is_the_difference_to_the_mean_stretched(pairs: Any) -> None:
    """R - mean of the others = (R - mean) n / (n - 1)."""
    rewards, groups = [r for r, _ in pairs], [g for _, g in pairs]
    stretched = [
        value * (n / (n - 1) if (n := groups.count(group)) > 1 else 1)
        for value, group in zip(centred(rewards, groups), groups, strict=True)
    ]
    assert rloo(rewards, groups) == pytest.approx(stretched, abs=1e-9)


@given(st.lists(st.floats(-3, 3), min_size=2, max_size=6), st.data(), baselines)
def test_leaving_outsiders_away_changes_no_baseline(
    rewards: list[float], data: Any, estimator: Any
) -> None:
    inside = data.draw(st.lists(st.booleans(), min_size=len(rewards), max_size=len(rewards)))
    if sum(inside) < 2:
        return
    values = estimator(rewards, ["g"] * len(rewards), in_baseline=inside)
    left = [reward for reward, counts in zip(rewards, inside, strict=True) if counts]
    found = [value for value, counts in zip(values, inside, strict=True) if counts]
    assert found == pytest.approx(estimator(left, ["g"] * len(left)), abs=1e-9)


def test_who_has_nobody_beside_keeps_the_reward() -> None:
    """Alone in the group, alone in the baseline, or with members that wrote nothing."""
    assert rloo([0.5], ["g"]) == centred([0.5], ["g"]) == opo([0.5], ["g"], [3]) == [0.5]
    inside = [True, False]
    assert rloo([0.5, 2.0], ["g"] * 2, inside) == [0.5, 1.5]
    assert opo([0.5, 2.0], ["g"] * 2, [1, 1], inside) == [0.5, 2.0]
    assert opo([0.5, 2.0], ["g"] * 2, [0, 0]) == [0.5, 2.0]


@pytest.mark.parametrize("value", [0.1, 0.7, 1e-3, 123456.7])
@pytest.mark.parametrize("size", [3, 6, 7])
def test_rounding_in_a_constant_group_is_no_signal(value: float, size: int) -> None:
    """The mean of three times 0.1 is not 0.1 in floating point."""
    rewards, groups = [value] * size, ["a"] * size
    zeros = [0.0] * size
    for std in ("population", "sample", "none"):
        assert group_advantage(rewards, groups, std=std, eps=0.0) == zeros  # type: ignore[arg-type]
    assert rloo(rewards, groups) == centred(rewards, groups) == zeros
    assert opo(rewards, groups, list(range(size))) == zeros
    mask = torch.ones(size, 2, dtype=torch.float64)
    assert not rfpp_baseline(rewards, groups, mask).any()
    assert not whiten(torch.tensor(rewards).double().unsqueeze(1) * mask, mask).any()
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


rectangles = st.integers(1, 5).flatmap(
    lambda width: st.lists(
        st.tuples(
            st.lists(st.integers(-3, 3), min_size=width, max_size=width),
            st.lists(st.booleans(), min_size=width, max_size=width),
        ),
        max_size=4,
    )
)


def tensors(rectangle: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """([B, T] rewards, [B, T] mask)."""
    shape = len(rectangle), len(rectangle[0][0]) if rectangle else 0
    values = torch.tensor([v for v, _ in rectangle], dtype=torch.float64).reshape(shape)
    mask = torch.tensor([m for _, m in rectangle], dtype=torch.float64).reshape(shape)
    return values, mask


@given(rectangles, st.sampled_from([1.0, 0.5]), st.floats(-9, 9))
def test_what_stands_at_masked_tokens_is_never_read(
    rectangle: Any, gamma: float, other: float
) -> None:
    values, mask = tensors(rectangle)
    noisy = torch.where(mask > 0, values, torch.full_like(values, other))
    for found, expected in zip(
        reinforce_pp(noisy, mask, gamma=gamma),
        reinforce_pp(values, mask, gamma=gamma),
        strict=True,
    ):
        assert torch.equal(found, expected)
        assert not found[mask == 0].any()


@given(rectangles, st.sampled_from([1.0, 0.5]))
def test_padding_changes_no_return(rectangle: Any, gamma: float) -> None:
    values, mask = tensors(rectangle)
    wide = [torch.nn.functional.pad(one, (0, 3)) for one in (values, mask)]
    gained, white = reinforce_pp(values, mask, gamma=gamma)
    padded, padded_white = reinforce_pp(wide[0], wide[1], gamma=gamma)
    assert torch.equal(padded[:, : values.shape[1]], gained)
    assert torch.allclose(padded_white[:, : values.shape[1]], white)


@given(rectangles, st.integers(-5, 5), st.sampled_from([0.5, 4.0]))
def test_whitening_takes_away_shift_and_scale(rectangle: Any, shift: int, scale: float) -> None:
    values, mask = tensors(rectangle)
    white = whiten(values, mask)
    moved = whiten(values * scale + shift, mask)
    assert torch.allclose(moved, white, atol=1e-5)
    kept = white[mask > 0]
    if kept.any():
        assert float(kept.mean()) == pytest.approx(0, abs=1e-9)
        assert float(kept.var()) == pytest.approx(1, abs=1e-6)


def test_a_value_that_is_no_number_stays_one_and_spoils_no_other() -> None:
    values = torch.tensor([[1.0, math.nan], [0.0, 5.0]], dtype=torch.float64)
    mask = torch.tensor([[1.0, 1.0], [1.0, 0.0]], dtype=torch.float64)
    white = whiten(values, mask)
    assert white[0, 1].isnan()
    assert white[:, 0].tolist() == pytest.approx([0.5**0.5, -(0.5**0.5)])
    assert white[1, 1] == 0
    constant = whiten(torch.tensor([[1.0, math.inf]]), torch.ones(1, 2))
    assert constant.tolist() == [[0.0, math.inf]]
