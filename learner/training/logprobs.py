"""Log-probabilities and entropies from vocabulary-parallel logits.

The sampler draws from softmax(logits / T); every log-prob here divides by the same T of the
request first (spec 6.7). Exact under tensor parallelism: each rank holds a slice of the
vocabulary and only one number a token crosses ranks. float32 throughout.
"""

from __future__ import annotations

from typing import Literal

import torch
import torch.distributed as dist
from megatron.core import parallel_state
from megatron.core.tensor_parallel import copy_to_tensor_model_parallel_region as used_by_all
from megatron.core.tensor_parallel import reduce_from_tensor_model_parallel_region as add_up

Entropy = Literal["none", "metric", "loss"]
"""What entropies are for: zeros, values without a gradient, or part of the loss."""


def score(
    logits: torch.Tensor,
    targets: torch.Tensor,
    temperature: torch.Tensor,
    *,
    with_entropy: Entropy,
) -> tuple[torch.Tensor, torch.Tensor]:
    """[n, v/tp] logits, [n] global ids, [n] temperatures -> ([n] log-probs, [n] entropies)."""
    divided = scaled(logits, temperature)
    partition = log_partition(divided)
    logp = log_probs(divided, targets, partition)
    if with_entropy == "none":
        return logp, torch.zeros_like(logp)
    if with_entropy == "loss":
        return logp, entropies(divided, partition)
    with torch.no_grad():
        return logp, entropies(divided.detach(), partition.detach())


def scaled(logits: torch.Tensor, temperature: torch.Tensor) -> torch.Tensor:
    """[n, v] float32 logits over [n] temperatures; left as they are where all are 1."""
    logits = logits.float()
    if bool((temperature == 1.0).all()):
        return logits
    return logits / temperature.unsqueeze(-1)


def log_partition(logits: torch.Tensor) -> torch.Tensor:
    """[n, v/tp] -> [n] log of the sum of exponentials over the whole vocabulary."""
    local = torch.logsumexp(logits, dim=-1)
    group = parallel_state.get_tensor_model_parallel_group()
    if group.size() == 1:
        return local
    largest = local.detach().clone()
    dist.all_reduce(largest, op=dist.ReduceOp.MAX, group=group)
    # Megatron adds up in place; exp keeps its result for the backward pass, hence the copy.
    total: torch.Tensor = add_up((local - largest).exp().clone())
    return total.log() + largest


def log_probs(logits: torch.Tensor, targets: torch.Tensor, partition: torch.Tensor) -> torch.Tensor:
    """[n, v/tp] scaled logits, [n] global ids, [n] log-partition -> [n]; differentiable."""
    width = logits.shape[-1]
    start = parallel_state.get_tensor_model_parallel_rank() * width
    local = targets - start
    here = (local >= 0) & (local < width)
    picked = logits.gather(-1, local.clamp(0, width - 1).unsqueeze(-1)).squeeze(-1)
    if parallel_state.get_tensor_model_parallel_world_size() > 1:
        picked = add_up(picked * here)
    return picked - partition


def entropies(logits: torch.Tensor, partition: torch.Tensor) -> torch.Tensor:
    """[n, v/tp] scaled logits, [n] log-partition -> [n] nats; differentiable."""
    # Each rank uses the partition on its own words: its gradient is the sum over the ranks.
    shared = used_by_all(partition)
    expected = ((logits - shared.unsqueeze(-1)).exp() * logits).sum(-1)
    if parallel_state.get_tensor_model_parallel_world_size() > 1:
        expected = add_up(expected)
    spread: torch.Tensor = partition - expected
    return spread
