"""Mixtures of experts (Qwen3-MoE): what Megatron is told, and whose experts lie where.

Every token goes to its experts, none is dropped, and no balancing loss is added: the samplers have
neither. The router computes in float32 in every precision, and is whole on every rank.

With `parallel.expert` above 1 each of that many ranks holds a share of every layer's experts, and
tokens travel to the ranks of their experts and back. These are ranks that had different tokens
anyway: of data parallelism, and of sequence parallelism beside tensor parallelism. An expert itself
is never split.

Without TransformerEngine the experts run one after the other and have names of their own;
its grouped ones are known to mbridge.
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
    """Whether a Hugging Face configuration is one of a mixture of experts."""
    return bool(getattr(config, "num_experts", None))


def check_ways(config: Any, folder: Path, *, sequence: bool) -> None:
    """ModelError where the ranks cannot share the configuration's model as the recipe asks.

    sequence: as in the recipe.
    """
    ranks = parallel.expert_size()
    if not has_experts(config):
        if ranks > 1:
            raise ModelError(
                f"parallel.expert = {ranks} shares out experts, and {folder} has none: set it to 1"
            )
        return
    if config.num_experts % ranks:
        raise ModelError(
            f"{config.num_experts} experts do not divide over parallel.expert = {ranks}"
        )
    if parallel.tensor_size() > 1 and not (ranks > 1 and sequence):
        raise ModelError(
            f"{folder} is a mixture of experts, and parallel.tensor = {parallel.tensor_size()} "
            "leaves an expert whole: set parallel.expert to 2 or more, so that ranks share the "
            "experts, and parallel.sequence = true, so that they share the tokens; or "
            "parallel.tensor = 1"
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
        # Chosen first and weighed among themselves, or weighed among all.
        "moe_router_pre_softmax": not config.norm_topk_prob,
        "moe_aux_loss_coeff": 0.0,
        "moe_grouped_gemm": fused,
        # The other dispatcher asks for as many tokens on every rank.
        "moe_token_dispatcher_type": "alltoall",
    }


def keep_apart(network: torch.nn.Module) -> None:
    """Gives experts' weights Megatron's mark of what is shared out, on one rank as on many.

    It keeps their gradients and their optimizer apart from the others': marked always, a checkpoint
    has one form however many ranks wrote it.
    """
    for name, parameter in network.named_parameters():
        if ".mlp.experts." in name:
            parameter.allreduce = False  # type: ignore[attr-defined]


class Grouped:
    """A network as mbridge reads it: experts that run one by one under the grouped ones' names.

    What it gives are the network's own weights.
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
    """In place of Megatron's copy to the host, which leaves out what lies there already."""
    return tensor.numpy() if as_numpy and isinstance(tensor, torch.Tensor) else tensor
