"""Root-mean-square norm with its backward written out.

torch's norm makes a dozen passes over memory. On a CPU that was as expensive as attention
(measured: 10 % of a step of a small model). Used without TransformerEngine; other dtypes than
float32 use torch's norm.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F


class RmsNorm(torch.nn.Module):
    """x / rms(x) * weight over the last dimension; constructed as Megatron's specs do."""

    def __init__(self, config: Any, hidden_size: int, eps: float = 1e-6, **_other: Any) -> None:
        super().__init__()
        self.eps = eps
        self.weight = torch.nn.Parameter(torch.ones(hidden_size, dtype=config.params_dtype))
        self.weight.sequence_parallel = config.sequence_parallel  # type: ignore[attr-defined]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.dtype is not torch.float32:
            return F.rms_norm(x, (x.shape[-1],), self.weight, self.eps)
        out: torch.Tensor = _RmsNorm.apply(x, self.weight, self.eps)  # type: ignore[no-untyped-call]
        return out


class _RmsNorm(torch.autograd.Function):
    """y = h w with h = x r and r = 1 / sqrt(mean(x^2) + eps).

    dx = r (g w - h mean(g w h)), dw = sum over rows of g h.
    """

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
        norm = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
        inverse = norm.square_().div_(x.shape[-1]).add_(eps).rsqrt_()
        normed = x * inverse
        ctx.save_for_backward(normed, inverse, weight)
        out: torch.Tensor = normed * weight
        return out

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, None]:
        (grad,) = grads
        normed, inverse, weight = ctx.saved_tensors
        product = grad * normed
        along = torch.matmul(product, weight).unsqueeze(-1).div_(-weight.shape[0])
        dx = (grad * weight).addcmul_(normed, along).mul_(inverse)
        return dx, product.flatten(0, -2).sum(0), None
