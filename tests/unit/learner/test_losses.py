"""Losses: gradients against finite differences, on-policy identities, weights of tokens."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from learner.maths import losses

N = 6


def numbers(seed: int) -> torch.Tensor:
    return torch.randn(N, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)) * 0.3


OLD, ADVANTAGE, REFERENCE = numbers(1), numbers(2), numbers(3)
MASK = torch.ones(1, N, dtype=torch.float64)
LOSSES: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "ppo": lambda x: losses.ppo_clip(x, OLD, ADVANTAGE, clip_low=0.2, clip_high=0.28).loss,
    "dual": lambda x: (
        losses.ppo_clip(x, OLD - 2, ADVANTAGE, clip_low=0.2, clip_high=0.28, dual_clip=3.0).loss
    ),
    "k1": lambda x: losses.kl(x, REFERENCE, "k1"),
    "k2": lambda x: losses.kl(x, REFERENCE, "k2"),
    "k3": lambda x: losses.kl(x, REFERENCE, "k3"),
    "abs": lambda x: losses.kl(x, REFERENCE, "abs"),
}


@pytest.mark.parametrize("name", LOSSES)
def test_gradient_agrees_with_finite_differences(name: str) -> None:
    point = numbers(4).requires_grad_()
    assert torch.autograd.gradcheck(LOSSES[name], (point,), eps=1e-7, atol=1e-5)


def test_cispo_gradient_is_that_of_the_log_prob_alone() -> None:
    point = numbers(4).requires_grad_()
    weight, loss = losses.cispo(point, OLD, ADVANTAGE, clip_low=1.0, clip_high=0.28)
    loss.sum().backward()
    assert torch.allclose(point.grad, -weight * ADVANTAGE)


def test_gspo_spreads_the_sequence_ratio_over_its_tokens() -> None:
    point = numbers(4)[None].requires_grad_()
    ratio, loss = losses.gspo(
        point, OLD[None], torch.tensor([0.7]), MASK, clip_low=9.0, clip_high=9.0
    )
    (loss * MASK / N).sum().backward()
    assert torch.allclose(point.grad, -0.7 * ratio[:, None] / N * MASK)


def test_on_policy_value_and_gradient() -> None:
    """Invariant 7: the value is -A, the gradient the one of REINFORCE."""
    point = OLD.clone().requires_grad_()
    loss = losses.ppo_clip(point, OLD, ADVANTAGE, clip_low=0.2, clip_high=0.28, dual_clip=3.0).loss
    assert torch.equal(loss, -ADVANTAGE)
    loss.sum().backward()
    assert torch.allclose(point.grad, -ADVANTAGE)


@given(st.lists(st.integers(0, 9), max_size=8), st.integers(0, 8))
def test_any_split_of_a_batch_adds_up_to_the_same_loss(counts: list[int], cut: int) -> None:
    """Invariant 3: weights are made once for the whole batch; parts just add."""
    for mode in ("token-mean", "seq-mean-token-mean", "seq-mean-token-sum"):
        weights = losses.token_weights(counts, mode)
        total = sum(w * c for w, c in zip(weights, counts, strict=True))
        parts = [
            sum(w * c for w, c in zip(weights[a:b], counts[a:b], strict=True))
            for a, b in ((0, cut), (cut, len(counts)))
        ]
        assert total == pytest.approx(sum(parts))
        if mode != "seq-mean-token-sum" and any(counts):
            assert total == pytest.approx(1.0)


def test_unknown_aggregation_is_refused() -> None:
    with pytest.raises(ValueError, match="median"):
        losses.token_weights([1], "median")


def test_correction_ignores_what_stands_at_masked_places() -> None:
    """Invariant 6: observation log-probs change nothing."""
    train, rollout = torch.zeros(1, 3), torch.zeros(1, 3)
    mask = torch.tensor([[1.0, 0.0, 1.0]])
    noisy = rollout.clone()
    noisy[0, 1] = -30.0
    for mode in ("token_truncate", "token_mask", "seq_truncate", "geo_mask"):
        plain = losses.rollout_correction(train, rollout, mask, mode)
        other = losses.rollout_correction(train, noisy, mask, mode)
        assert all(torch.equal(a, b) for a, b in zip(plain, other, strict=True))
