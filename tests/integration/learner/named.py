"""Gradients by the names that a Hugging Face folder gives the weights."""

from __future__ import annotations

import torch
import torch.distributed as dist
from megatron.core import parallel_state

from learner.model import bridge
from learner.model.policy import Policy
from learner.saving import split_optimizer


def named_gradients(policy: Policy) -> dict[str, torch.Tensor]:
    """What the last backward left, whole and in transformers' layout, zeros where weights are
    frozen: the weights' own way out is taken with the gradients in their place. All ranks call it.
    """
    policy.gather()
    kept = [p.detach().clone() for p in policy.bare.parameters()]
    with torch.no_grad():
        for parameter in policy.bare.parameters():
            parameter.copy_(_gradient(policy, parameter))
        found = {
            name: value.clone().contiguous()
            for name, value in bridge.named_weights(policy.bridge, policy.bare)
        }
        for parameter, value in zip(policy.bare.parameters(), kept, strict=True):
            parameter.copy_(value)
    return found


def _gradient(policy: Policy, parameter: torch.Tensor) -> torch.Tensor:
    """The whole gradient, also where each data-parallel rank has the sum of a part only."""
    own: torch.Tensor = getattr(parameter, "main_grad", torch.zeros_like(parameter))
    if not split_optimizer.is_split(policy.optimizer) or not hasattr(parameter, "main_grad"):
        return own
    whole = torch.zeros_like(own)
    for part in policy.optimizer.chained_optimizers:
        for owned, start, end in split_optimizer.own_ranges(part):
            if owned is parameter:
                whole.view(-1)[start:end] = own.view(-1)[start:end]
    if getattr(parameter, "allreduce", True):
        group = parallel_state.get_data_parallel_group(with_context_parallel=True)
    else:  # an expert's
        group = parallel_state.get_expert_data_parallel_group()
    dist.all_reduce(whole, group=group)
    return whole


def named_weights(policy: Policy) -> dict[str, torch.Tensor]:
    """A copy of the weights, whole and in transformers' layout. All ranks call it."""
    policy.gather()
    with torch.no_grad():
        return {
            name: value.clone().contiguous()
            for name, value in bridge.named_weights(policy.bridge, policy.bare)
        }
