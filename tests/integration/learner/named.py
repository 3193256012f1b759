"""Gradients by the names that a Hugging Face folder gives the weights."""

from __future__ import annotations

import torch

from learner.model import bridge
from learner.model.policy import Policy


def named_gradients(policy: Policy) -> dict[str, torch.Tensor]:
    """What the last backward left, whole and in transformers' layout, zeros where weights are
    frozen: the weights' own way out is taken with the gradients in their place. All ranks call it.
    """
    kept = [p.detach().clone() for p in policy.bare.parameters()]
    with torch.no_grad():
        for parameter in policy.bare.parameters():
            parameter.copy_(getattr(parameter, "main_grad", torch.zeros_like(parameter)))
        found = {
            name: value.clone().contiguous()
            for name, value in bridge.named_weights(policy.bridge, policy.bare)
        }
        for parameter, value in zip(policy.bare.parameters(), kept, strict=True):
            parameter.copy_(value)
    return found


def named_weights(policy: Policy) -> dict[str, torch.Tensor]:
    """A copy of the weights, whole and in transformers' layout. All ranks call it."""
    with torch.no_grad():
        return {
            name: value.clone().contiguous()
            for name, value in bridge.named_weights(policy.bridge, policy.bare)
        }
