"""Muon on a CPU: the same step as torch's, in a precision that a CPU is fast at."""

import copy

import pytest
import torch

from learner.model.muon import Muon, orthogonalised


@pytest.mark.parametrize("shape", [(48, 16), (16, 48), (16, 16)])
def test_singular_values_come_near_one(shape: tuple[int, int]) -> None:
    matrix = torch.randn(shape, generator=torch.Generator().manual_seed(1))
    values = torch.linalg.svdvals(orthogonalised(matrix))
    assert values.min() > 0.5
    assert values.max() < 1.5


def test_a_matrix_of_zeros_stays_finite() -> None:
    assert torch.isfinite(orthogonalised(torch.zeros(4, 8))).all()


def test_steps_agree_with_torch_s_within_bfloat16() -> None:
    draw = torch.Generator().manual_seed(2)
    mine = torch.nn.Parameter(torch.randn(24, 12, generator=draw))
    theirs = copy.deepcopy(mine)
    options = {"lr": 0.1, "weight_decay": 0.1, "adjust_lr_fn": "match_rms_adamw"}
    optimizers = [Muon([mine], **options), torch.optim.Muon([theirs], **options)]
    for _ in range(3):
        gradient = torch.randn(24, 12, generator=draw)
        for parameter, optimizer in zip((mine, theirs), optimizers, strict=True):
            parameter.grad = gradient.clone()
            optimizer.step()
    assert optimizers[0].state_dict()["state"].keys() == optimizers[1].state_dict()["state"].keys()
    assert torch.allclose(mine, theirs, atol=0.03)
    assert (mine - theirs).abs().max() > 0  # theirs is bfloat16's
