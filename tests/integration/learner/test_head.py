"""Log-probs in chunks: the numbers and gradients of a plain softmax, without its tensors."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from learner.model import head
from learner.model.head import Wanted, scores

pytestmark = pytest.mark.quick

VOCABULARY, HIDDEN, TARGETS = 97, 8, 11


def inputs(dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor, Wanted]:
    draw = torch.Generator().manual_seed(0)
    hidden = torch.randn(TARGETS, HIDDEN, generator=draw, dtype=dtype, requires_grad=True)
    weight = torch.randn(VOCABULARY, HIDDEN, generator=draw, dtype=dtype, requires_grad=True)
    wanted = Wanted(
        index=torch.arange(TARGETS),
        targets=torch.randint(VOCABULARY, (TARGETS,), generator=draw),
        temperature=torch.rand(TARGETS, generator=draw) + 0.5,
        entropy="loss",
    )
    return hidden, weight, wanted


def plain(
    hidden: torch.Tensor, weight: torch.Tensor, wanted: Wanted
) -> tuple[torch.Tensor, torch.Tensor]:
    logits = (hidden @ weight.t()).float()
    if wanted.temperature is not None:
        logits = logits / wanted.temperature[:, None]
    logp = torch.log_softmax(logits, -1)
    return logp.gather(-1, wanted.targets[:, None])[:, 0], -(logp.exp() * logp).sum(-1)


@pytest.mark.parametrize("at_once", [1, 4, TARGETS])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_chunks_give_what_a_softmax_gives(
    one_rank: None, monkeypatch: pytest.MonkeyPatch, at_once: int, dtype: torch.dtype
) -> None:
    monkeypatch.setattr(head, "chunk_bytes", lambda: at_once * VOCABULARY * 4)
    hidden, weight, wanted = inputs(dtype)
    found = scores(hidden, weight, wanted)
    expected = plain(hidden, weight, wanted)
    for mine, theirs in zip(found, expected, strict=True):
        assert torch.allclose(mine, theirs, atol=2e-6)
    # Every target has another gradient, through its log-prob and through its entropy.
    pull = torch.linspace(-1, 2, TARGETS)
    mine = torch.autograd.grad((found[0] * pull + found[1] * pull.flip(0)).sum(), (hidden, weight))
    theirs = torch.autograd.grad(
        (expected[0] * pull + expected[1] * pull.flip(0)).sum(), (hidden, weight)
    )
    for one, other in zip(mine, theirs, strict=True):
        assert one.dtype is dtype
        close = 1e-5 if dtype is torch.float32 else 0.05
        assert torch.allclose(one, other, atol=close), (one - other).abs().max()


class Largest(TorchDispatchMode):
    """The most numbers of any tensor that an operation made."""

    def __init__(self) -> None:
        super().__init__()
        self.numbers = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for value in out if isinstance(out, tuple | list) else (out,):
            if isinstance(value, torch.Tensor):
                self.numbers = max(self.numbers, value.numel())
        return out


def test_no_tensor_is_larger_than_a_chunk(one_rank: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(head, "chunk_bytes", lambda: 2 * VOCABULARY * 4)
    hidden, weight, wanted = inputs(torch.float32)
    with Largest() as seen:
        logp, entropy = scores(hidden, weight, wanted)
        (logp + entropy).sum().backward()
    assert seen.numbers == max(2 * VOCABULARY, weight.numel())


def test_what_nobody_asks_for_is_not_computed(one_rank: None) -> None:
    """No targets, a frozen head, an entropy for the metrics alone."""
    hidden, weight, wanted = inputs(torch.float32)
    none = torch.empty(0, dtype=torch.int64)
    empty = Wanted(index=none, targets=none, temperature=None, entropy="metric")
    logp, _ = scores(hidden[:0], weight, empty)
    logp.sum().backward()
    assert weight.grad is not None and not weight.grad.any()

    metric = Wanted(index=wanted.index, targets=wanted.targets, temperature=None, entropy="metric")
    logp, entropy = scores(hidden, weight.detach(), metric)
    assert not entropy.requires_grad
    (own,) = torch.autograd.grad(logp.sum(), (hidden,))
    (other,) = torch.autograd.grad(plain(hidden, weight, metric)[0].sum(), (hidden,))
    assert torch.allclose(own, other, atol=1e-5)


def test_logits_of_any_size_stay_finite(one_rank: None) -> None:
    hidden, weight, wanted = inputs(torch.float32)
    logp, entropy = scores(hidden * 1e4, weight, wanted)
    assert logp.isfinite().all()
    assert (entropy >= -1e-2).all()
