"""Which attention a packed row takes; the kernel itself runs on CUDA alone (bench/gpu)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from learner.model import varlen
from learner.model.packed import CausalAttention, Packed

pytestmark = pytest.mark.quick

CUDA, CPU = torch.device("cuda"), torch.device("cpu")


@pytest.mark.parametrize(
    ("where", "dtype", "head", "fits"),
    [
        (CUDA, torch.bfloat16, 128, True),
        (CUDA, torch.float32, 128, False),
        (CUDA, torch.bfloat16, 257, False),
        (CUDA, torch.bfloat16, 100, False),
        (CPU, torch.bfloat16, 128, False),
    ],
)
def test_one_call_serves_half_precision_on_cuda(
    where: torch.device, dtype: torch.dtype, head: int, fits: bool
) -> None:
    assert varlen.fits(where, dtype, head) is fits


def test_torch_without_the_kernel_falls_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(varlen, "varlen_attn", None)
    assert not varlen.fits(CUDA, torch.bfloat16, 128)


def attention_of(row: Packed) -> tuple[torch.Tensor, torch.Tensor]:
    """(what `CausalAttention` gives for five random tokens, their queries)"""
    core = CausalAttention.__new__(CausalAttention)
    torch.nn.Module.__init__(core)
    core._scale = None
    torch.manual_seed(0)
    query, key, value = (torch.randn(5, 1, heads, 8) for heads in (4, 2, 2))
    return core(query, key, value, None, packed_seq_params=row), query


def test_a_row_with_ends_is_one_call(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[Any, ...]] = []

    def attend(*arguments: Any) -> torch.Tensor:
        calls.append(arguments)
        return arguments[0]

    monkeypatch.setattr(varlen, "fits", lambda *_: True)
    monkeypatch.setattr(varlen, "attend", attend)
    ends = torch.tensor([0, 3, 5], dtype=torch.int32)
    row = Packed(
        max_seqlen_q=3, max_seqlen_kv=3, runs=((1, 3), (1, 2)), ends=ends, masks=(None,) * 2
    )
    out, query = attention_of(row)
    (call,) = calls
    assert call[0].shape == (5, 4, 8)
    assert call[1].shape == call[2].shape == (5, 2, 8)
    assert call[3] is ends
    assert call[4] == 3
    assert torch.equal(out, query.squeeze(1).flatten(1).unsqueeze(1))


def test_float32_repeats_keys_on_cuda_alone() -> None:
    def query(is_cuda: bool, dtype: torch.dtype) -> Any:
        return SimpleNamespace(is_cuda=is_cuda, dtype=dtype)

    assert varlen.wants_repeated_keys(query(True, torch.float32))
    assert not varlen.wants_repeated_keys(query(True, torch.bfloat16))
    assert not varlen.wants_repeated_keys(query(False, torch.float32))
