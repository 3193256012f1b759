"""Our norm is torch's norm, value and gradients."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F

from learner.model.norm import RmsNorm

CONFIG = SimpleNamespace(params_dtype=torch.float32, sequence_parallel=False)


@pytest.mark.parametrize("shape", [(7, 3, 16), (5, 2, 4, 8)])
def test_value_and_gradients(shape: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    x = torch.randn(shape, requires_grad=True)
    norm = RmsNorm(CONFIG, shape[-1], 1e-5)
    with torch.no_grad():
        norm.weight.normal_()
    weight = norm.weight.detach().clone().requires_grad_()
    mine = norm(x)
    theirs = F.rms_norm(x, shape[-1:], weight, 1e-5)
    assert torch.allclose(mine, theirs, atol=1e-6)
    grad = torch.randn(shape)
    found = torch.autograd.grad(mine, (x, norm.weight), grad)
    expected = torch.autograd.grad(theirs, (x, weight), grad)
    assert all(torch.allclose(a, b, atol=1e-5) for a, b in zip(found, expected, strict=True))


def test_zero_input_has_a_finite_gradient() -> None:
    x = torch.zeros(2, 8, requires_grad=True)
    RmsNorm(CONFIG, 8)(x).sum().backward()
    assert bool(torch.isfinite(x.grad).all())
