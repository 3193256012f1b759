"""Attention of a packed row, by each way that the learner can take on this device."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import torch
import torch.nn.functional as F

from bench.gpu.stages import Figures, Scale, machine
from learner.model import varlen
from learner.model.packed import CausalAttention, packed
from learner.ranks import device

SHAPES = ((16, 8, 128), (14, 2, 64), (4, 2, 16))
"""Heads, groups, head size."""
LIMITS = {torch.bfloat16: 1e-2, torch.float32: 1e-5}


def attention(scale: Scale) -> Figures:
    """Distance from float64 of the result and of three gradients; milliseconds of a forward and
    backward over lengths never seen, each twice."""
    dtype = torch.bfloat16 if device.has_cuda() else torch.float32
    draw = np.random.default_rng(1)
    lengths = [int(n) for n in draw.integers(3, 300, 9)] + [1, 7]
    figures: Figures = {"distance": {}}
    for heads, groups, size in SHAPES:
        inputs = [
            torch.randn(sum(lengths), n, size, dtype=torch.float64) for n in (heads, groups, groups)
        ]
        weight = torch.randn(sum(lengths), 1, heads * size, dtype=torch.float64)
        want = _results(lengths, inputs, weight, torch.float64, "float64")
        for way in _ways(dtype, size):
            got = _results(lengths, inputs, weight, dtype, way)
            far = [
                float((a.double().cpu() - b).norm() / b.norm())
                for a, b in zip(got, want, strict=True)
            ]
            figures["distance"][f"{way} {heads}/{groups}x{size}"] = far
            if max(far) > LIMITS[dtype]:
                raise AssertionError(f"{way} is too far from float64: {far}")
    figures["ms"] = {way: _times(way, dtype, draw, scale) for way in _ways(dtype, 128)}
    if device.has_cuda():
        figures["ms"]["runs with cuDNN"] = _with_cudnn(lambda: _times("runs", dtype, draw, scale))
        figures["float32_4096"] = {
            "groups": _float32(grouped=True),
            "repeated": _float32(grouped=False),
        }
    return figures


def _ways(dtype: torch.dtype, size: int) -> list[str]:
    return ["runs", *(["one call"] if varlen.fits(device.device(), dtype, size) else [])]


def _forward(
    way: str, lengths: Sequence[int], query: torch.Tensor, key: torch.Tensor, value: torch.Tensor
) -> torch.Tensor:
    if way == "float64":
        return _plain(lengths, query, key, value)
    core = CausalAttention.__new__(CausalAttention)
    torch.nn.Module.__init__(core)
    core._scale = None
    positions = torch.cat([torch.arange(n) for n in lengths])[None].to(device.device())
    row = packed(lengths, positions, fused=False)
    if way == "runs":
        row.ends = None
    out: torch.Tensor = core(
        query[:, None], key[:, None], value[:, None], None, packed_seq_params=row
    )
    return out


def _plain(
    lengths: Sequence[int], query: torch.Tensor, key: torch.Tensor, value: torch.Tensor
) -> torch.Tensor:
    """Softmax of masked products, sequence by sequence."""
    done = []
    pieces = (torch.split(t, list(lengths)) for t in (query, key, value))
    for q, k, v in zip(*pieces, strict=True):
        repeated = q.shape[1] // k.shape[1]
        q, k, v = (
            t.transpose(0, 1)
            for t in (q, k.repeat_interleave(repeated, 1), v.repeat_interleave(repeated, 1))
        )
        seen = torch.ones(len(q[0]), len(q[0]), dtype=torch.bool).tril()
        product = (q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])).masked_fill(~seen, -math.inf)
        done.append((product.softmax(-1) @ v).transpose(0, 1).flatten(1))
    return torch.cat(done).unsqueeze(1)


def _results(
    lengths: Sequence[int],
    inputs: Sequence[torch.Tensor],
    weight: torch.Tensor,
    dtype: torch.dtype,
    way: str,
) -> list[torch.Tensor]:
    where = torch.device("cpu") if way == "float64" else device.device()
    own = [t.to(where, dtype).clone().requires_grad_() for t in inputs]
    out = _forward(way, lengths, *own)
    (out * weight.to(where, dtype)).sum().backward()  # type: ignore[no-untyped-call]
    return [out.detach(), *(t.grad for t in own if t.grad is not None)]


def _times(
    way: str, dtype: torch.dtype, draw: np.random.Generator, scale: Scale
) -> list[list[float]]:
    """Milliseconds of three micro-batches of new lengths, each run twice."""
    low, high, count = (20, 90, 5) if scale.small else (300, 1800, 15)
    out = []
    for _ in range(3):
        lengths = sorted((int(n) for n in draw.integers(low, high, count)), reverse=True)
        own = [
            torch.randn(sum(lengths), n, 128, device=device.device(), dtype=dtype).requires_grad_()
            for n in (16, 8, 8)
        ]
        call = partial(_forward, way, lengths, *own)
        out.append([_timed(call) for _ in range(2)])
    return out


def _timed(call: Callable[[], torch.Tensor]) -> float:
    machine.wait()
    began = time.monotonic()
    call().sum().backward()  # type: ignore[no-untyped-call]
    machine.wait()
    return round(1000 * (time.monotonic() - began), 2)


def _with_cudnn(call: Callable[[], list[list[float]]]) -> list[list[float]]:
    torch.backends.cuda.enable_cudnn_sdp(True)
    try:
        return call()
    finally:
        torch.backends.cuda.enable_cudnn_sdp(False)


def _float32(*, grouped: bool) -> Figures:
    """One sequence of 4,096 float32 tokens. Kernels without groups keep no [s, s] matrix."""
    query, key = (
        torch.randn(1, n, 4096, 128, device=device.device(), requires_grad=True) for n in (16, 8)
    )
    keys = key if grouped else key.repeat_interleave(2, 1)
    machine.forget_peak()
    ms = _timed(
        lambda: F.scaled_dot_product_attention(
            query, keys, keys, is_causal=True, enable_gqa=grouped
        )
    )
    return {"ms": ms, "peak_gb": machine.peak_gb()}
