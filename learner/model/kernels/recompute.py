"""Selective recompute: what a layer drops in the forward pass, and computes again at little cost.

These are the results of both norms, which Megatron drops by itself, and the product of gate and up
between the two feed-forward matrices. A matrix needs its input for its gradient: a hook on the
layer's result restores the input first. Attention is not computed again: torch's fused kernels keep
no scores, so it would cost a forward pass and save nothing.

With TransformerEngine the norms are part of its linear layers, and only the product is dropped. An
expert's product is kept.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from megatron.core import tensor_parallel
from megatron.core.fusions.fused_bias_swiglu import bias_swiglu_impl
from megatron.core.tensor_parallel import CheckpointWithoutOutput
from megatron.core.transformer.mlp import MLP


class Dropped(CheckpointWithoutOutput):  # type: ignore[misc]
    """Megatron's checkpoint, which also runs without TransformerEngine.

    Its flag for FP8 is set by every value but None in megatron-core 0.16.1.
    """

    def __init__(self, fp8: Any = None) -> None:
        super().__init__(fp8 or None)


def recompute_selectively(network: torch.nn.Module) -> None:
    """Makes every feed-forward part of a GPTModel drop its product, and its norms their result."""
    tensor_parallel.CheckpointWithoutOutput = Dropped
    for module in network.modules():
        if type(module) is MLP:
            module.forward = partial(_forward, module)


def _forward(mlp: Any, hidden: torch.Tensor, *args: Any, **options: Any) -> Any:
    """W2 (silu(Wg x) * Wu x): [s, b, h] -> ([s, b, h], None). There are no biases."""
    weighed = bool(args) or options.get("per_token_scale") is not None  # an expert
    if weighed or not torch.is_grad_enabled():
        return MLP.forward(mlp, hidden, *args, **options)
    joined, _ = mlp.linear_fc1(hidden)
    dropped = Dropped()
    activation = bias_swiglu_impl if mlp.config.bias_activation_fusion else _gated
    out, bias = mlp.linear_fc2(dropped.checkpoint(activation, joined, None))
    dropped.discard_output_and_register_recompute(out)
    return out, bias


def _gated(joined: torch.Tensor, _bias: None) -> torch.Tensor:
    """Gate and up [.., 2 f] -> [.., f]"""
    gate, up = joined.chunk(2, dim=-1)
    return F.silu(gate) * up
