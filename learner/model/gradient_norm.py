"""The global norm of gradients and clipping by it, with one wait for the device.

Without TransformerEngine and Apex, Megatron copies the norm of each weight to the host: 226 waits a
step for 28 layers, measured on an H100 (bench/gpu/results).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist

from learner.ranks import device

TINY = 1e-6
"""Added to the norm before it divides, as Megatron and torch do."""


@torch.no_grad()
def global_norm(optimizers: Sequence[Any]) -> float:
    """L2 norm over all ranks' gradients of Megatron optimizers whose gradients are ready.

    Each optimizer sums over its own group of ranks: a weight that several ranks hold counts once.
    """
    totals = []
    for optimizer in optimizers:
        grads = _counted(optimizer)
        total = torch.zeros((), device=device.device())
        if grads:
            total = torch.stack(torch._foreach_norm(grads)).square().sum()
        group = optimizer.get_grad_stats_parallel_group()
        if group.size() > 1:
            dist.all_reduce(total, group=group)
        totals.append(total)
    return math.sqrt(float(torch.stack(totals).sum()))


def _counted(optimizer: Any) -> list[torch.Tensor]:
    """Gradients of the weights that count on this rank. megatron-core 0.19 has another name."""
    if hasattr(optimizer, "get_grads_for_grad_norm"):
        return list(optimizer.get_grads_for_grad_norm())
    return list(optimizer.get_main_grads_for_grad_norm())


@torch.no_grad()
def clip(parameters: Sequence[torch.nn.Parameter], limit: float, norm: float) -> None:
    """Scales the gradients in place so that a global norm of `norm` becomes at most `limit`."""
    grads = [p.grad for p in parameters if p.grad is not None]
    factor = limit / (norm + TINY)
    if factor < 1 and grads:
        torch._foreach_mul_(grads, factor)
