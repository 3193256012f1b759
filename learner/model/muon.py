"""Muon inside Megatron's optimizer wrapper.

Megatron 0.16's own Muon needs a package that does not install on Python 3.11. So torch.optim.Muon
goes into Megatron's wrapper of the weights' dtype, beside the wrapped Adam in one chain. Gradient
norm, clipping and checkpoints treat both alike. Muon updates the 2-D weights except embeddings,
Adam the rest. The rate is scaled to Adam's update size ("match_rms_adamw"). So Megatron's fused
q-k-v and gate-up matrices have the same rate as their parts.

torch orthogonalises in bfloat16. A CPU without bfloat16 instructions multiplies it ten times slower
than float32, which was half of a tiny model's step. On CPUs it is float32.

Whole matrices only: no tensor parallelism.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from megatron.core import parallel_state
from megatron.core.optimizer.optimizer import Float16OptimizerWithFloat16Params, FP32Optimizer

MOMENTUM = 0.95
NEWTON_SCHULZ_STEPS = 5
QUINTIC = (3.4445, -4.7750, 2.0315)
"""Coefficients of the iteration's polynomial (kellerjordan.github.io/posts/muon)."""
SMALLEST_NORM = 1e-7


class Muon(torch.optim.Muon):
    """torch's Muon, with orthogonalisation in float32 for weights on a CPU."""

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        if closure is not None or not self._on_cpu():
            return super().step(closure)  # type: ignore[no-untyped-call]
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self._move(parameter, parameter.grad, group)
        return None

    def _on_cpu(self) -> bool:
        return all(p.is_cpu for group in self.param_groups for p in group["params"])

    def _move(self, parameter: torch.Tensor, gradient: torch.Tensor, group: dict[str, Any]) -> None:
        """Updates one weight: Nesterov momentum, orthogonalised, at Adam's update size."""
        state = self.state[parameter]
        if "momentum_buffer" not in state:
            state["momentum_buffer"] = torch.zeros_like(gradient)
        momentum = state["momentum_buffer"].lerp_(gradient, 1 - group["momentum"])
        update = orthogonalised(gradient.lerp(momentum, group["momentum"]).float())
        rate = group["lr"] * 0.2 * math.sqrt(max(parameter.shape))
        parameter.mul_(1 - group["lr"] * group["weight_decay"])
        parameter.add_(update.to(parameter.dtype), alpha=-rate)


def orthogonalised(matrix: torch.Tensor, steps: int = NEWTON_SCHULZ_STEPS) -> torch.Tensor:
    """[m, n] with all singular values near 1, by the quintic Newton-Schulz iteration, in the
    matrix's own precision."""
    wide = matrix.T if matrix.size(0) > matrix.size(1) else matrix
    wide = wide / wide.norm().clamp(min=SMALLEST_NORM)
    a, b, c = QUINTIC
    for _ in range(steps):
        gram = wide @ wide.T
        wide = torch.addmm(wide, torch.addmm(gram, gram, gram, beta=b, alpha=c), wide, beta=a)
    return wide.T if matrix.size(0) > matrix.size(1) else wide


def takes(name: str, parameter: torch.nn.Parameter) -> bool:
    """Whether Muon updates this weight."""
    return parameter.dim() == 2 and "embedding" not in name and "output_layer" not in name


@contextmanager
def hidden_from_adam(model: torch.nn.Module) -> Iterator[list[torch.nn.Parameter]]:
    """Yields Muon's weights; inside of the block Megatron builds Adam without them."""
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
        # Megatron's checkpoints distinguish groups by these.
        "wd_mult": 1.0,
        "lr_mult": 1.0,
        "is_expert_parallel": False,
        "is_decoupled_lr": False,
    }
    muon = Muon(
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
