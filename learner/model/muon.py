"""Muon inside Megatron's optimizer wrapper.

Megatron 0.16's own Muon needs a package that does not install on Python 3.11; torch.optim.Muon
goes into Megatron's wrapper of the weights' dtype instead, beside the wrapped Adam in one chain:
gradient norm, clipping and checkpoints treat both alike. Muon takes the 2-D weights but the
embeddings, Adam the rest. The rate is scaled to Adam's update size ("match_rms_adamw"), which makes
it the same for Megatron's fused q-k-v and gate-up matrices as for their parts.

Whole matrices only: no tensor parallelism.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from megatron.core import parallel_state
from megatron.core.optimizer.optimizer import Float16OptimizerWithFloat16Params, FP32Optimizer

MOMENTUM = 0.95
NEWTON_SCHULZ_STEPS = 5


def takes(name: str, parameter: torch.nn.Parameter) -> bool:
    """Whether Muon updates this weight."""
    return parameter.dim() == 2 and "embedding" not in name and "output_layer" not in name


@contextmanager
def hidden_from_adam(model: torch.nn.Module) -> Iterator[list[torch.nn.Parameter]]:
    """Muon's weights; while the block runs Megatron builds Adam without them."""
    mine = [p for name, p in model.named_parameters() if p.requires_grad and takes(name, p)]
    for parameter in mine:
        parameter.requires_grad = False
    try:
        yield mine
    finally:
        for parameter in mine:
            parameter.requires_grad = True


def wrapped(parameters: list[torch.nn.Parameter], lr: float, config: Any) -> Any:
    """A Megatron optimizer around torch's Muon. `config`: that of the chain's Adam.

    bfloat16 weights have float32 masters, which Muon moves.
    """
    group = {
        "params": parameters,
        # What Megatron's checkpoints tell groups apart by.
        "wd_mult": 1.0,
        "lr_mult": 1.0,
        "is_expert_parallel": False,
        "is_decoupled_lr": False,
    }
    muon = torch.optim.Muon(
        [group],
        lr=lr,
        weight_decay=0.0,
        momentum=MOMENTUM,
        ns_steps=NEWTON_SCHULZ_STEPS,
        adjust_lr_fn="match_rms_adamw",
    )
    optimizer: Any
    if config.bf16:
        optimizer = Float16OptimizerWithFloat16Params(muon, config, None, _zero_momentum)
    else:
        optimizer = FP32Optimizer(muon, config, _zero_momentum)
    optimizer.grad_stats_parallel_group = parallel_state.get_model_parallel_group()
    optimizer.tp_group = parallel_state.get_tensor_model_parallel_group()
    return optimizer


def _zero_momentum(optimizer: torch.optim.Optimizer, config: Any = None) -> None:
    """Gives every weight the state that a checkpoint is read into."""
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            if not optimizer.state[parameter]:
                optimizer.state[parameter]["momentum_buffer"] = torch.zeros_like(parameter)
