"""Mixtures of experts (Qwen3-MoE): Megatron's settings, and the experts' weights.

Every token goes to its experts: no token is dropped and no balancing loss is added, as in the
samplers. The router computes in float32 in every precision, and is whole on every rank.

With `parallel.expert` above 1 that many ranks share every layer's experts. Tokens travel to the
ranks of their experts and back. These ranks have different tokens anyway, by data parallelism, or
by sequence parallelism beside tensor parallelism. An expert is never split.

Without TransformerEngine the experts run one after the other under names of their own. mbridge
knows only TransformerEngine's grouped experts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from megatron.core.transformer.moe import moe_utils, token_dispatcher

from learner.errors import ModelError
from learner.ranks import device, parallel

_LOCAL = re.compile(r"(.+\.mlp\.experts)\.local_experts\.(\d+)\.(linear_fc[12])\.weight")


def has_experts(config: Any) -> bool:
    """Whether a Hugging Face configuration has a mixture of experts."""
    return bool(getattr(config, "num_experts", None))


def check_layout(config: Any, folder: Path, *, sequence: bool) -> None:
    """Raises ModelError if the recipe's ranks cannot share the configuration's model.

    sequence: as in the recipe.
    """
    ranks = parallel.expert_size()
    if not has_experts(config):
        if ranks > 1:
            raise ModelError(
                f"parallel.expert = {ranks} distributes experts, and {folder} has no experts: set "
                "it to 1"
            )
        return
    if config.num_experts % ranks:
        raise ModelError(
            f"{config.num_experts} experts do not divide over parallel.expert = {ranks}: set a "
            "divisor of it"
        )
    if parallel.tensor_size() > 1 and not (ranks > 1 and sequence):
        raise ModelError(
            f"{folder} is a mixture of experts, and parallel.tensor = {parallel.tensor_size()} "
            "does not split an expert: set parallel.expert to 2 or more and parallel.sequence = "
            "true, so that ranks share the experts and the tokens; or set parallel.tensor = 1"
        )


def settings(config: Any, *, fused: bool) -> dict[str, Any]:
    """Megatron's settings for the configuration's experts. `fused`: with TransformerEngine."""
    if not has_experts(config):
        return {}
    if not hasattr(moe_utils, "te_general_gemm"):
        moe_utils.te_general_gemm = None  # megatron-core 0.16.1 reads it without its import
    if not device.has_cuda():
        token_dispatcher.maybe_move_tensor_to_cpu = _on_host
    return {
        "moe_router_dtype": "fp32",
        # Softmax over the chosen experts, or over all of them.
        "moe_router_pre_softmax": not config.norm_topk_prob,
        "moe_aux_loss_coeff": 0.0,
        "moe_grouped_gemm": fused,
        # The other dispatcher needs the same number of tokens on every rank.
        "moe_token_dispatcher_type": "alltoall",
    }


def mark_expert_weights(network: torch.nn.Module) -> None:
    """Gives experts' weights Megatron's mark for expert parallelism, on any number of ranks.

    The mark separates their gradients and their optimizer from the others'. With it on every number
    of ranks, a checkpoint always has the same form.
    """
    for name, parameter in network.named_parameters():
        if ".mlp.experts." in name:
            parameter.allreduce = False  # type: ignore[attr-defined]


class Grouped:
    """A view of a network for mbridge: single experts under the names of grouped experts.

    The weights are the network's own.
    """

    def __init__(self, network: Any) -> None:
        self.decoder = network.decoder
        self._network = network
        self._state = {_grouped(name): value for name, value in network.state_dict().items()}

    def state_dict(self) -> dict[str, Any]:
        return self._state

    def named_parameters(self) -> Iterator[tuple[str, torch.nn.Parameter]]:
        for name, parameter in self._network.named_parameters():
            yield _grouped(name), parameter


def _grouped(name: str) -> str:
    found = _LOCAL.fullmatch(name)
    return "{0}.{2}.weight{1}".format(*found.groups()) if found is not None else name


def _on_host(tensor: Any, as_numpy: bool = False, record_stream: bool = False) -> Any:
    """Replaces Megatron's copy to the host, which skips tensors that are there already."""
    return tensor.numpy() if as_numpy and isinstance(tensor, torch.Tensor) else tensor
