"""Mixtures of experts (Qwen3-MoE): what Megatron is told, and what it calls an expert's weights.

Every token goes to its experts, none is dropped, and no balancing loss is added: the samplers have
neither. The router computes in float32 in every precision. Without TransformerEngine the experts
run one after the other and have names of their own; its grouped ones are known to mbridge.

There is no expert parallelism: every rank holds all experts.
"""

from __future__ import annotations

import re
from typing import Any

from megatron.core.transformer.moe import moe_utils

_LOCAL = re.compile(
    r"decoder\.layers\.(\d+)\.mlp\.experts\.local_experts\.(\d+)\.(linear_fc[12])\.weight"
)
_PARTS = {"linear_fc1": ("gate_proj", "up_proj"), "linear_fc2": ("down_proj",)}


def has_experts(config: Any) -> bool:
    """Whether a Hugging Face configuration is one of a mixture of experts."""
    return bool(getattr(config, "num_experts", None))


def settings(config: Any, *, fused: bool) -> dict[str, Any]:
    """Megatron's settings for the configuration's experts. `fused`: with TransformerEngine."""
    if not has_experts(config):
        return {}
    if not hasattr(moe_utils, "te_general_gemm"):
        moe_utils.te_general_gemm = None  # megatron-core 0.16.1 reads it without its import
    return {
        "moe_router_dtype": "fp32",
        # Chosen first and weighed among themselves, or weighed among all.
        "moe_router_pre_softmax": not config.norm_topk_prob,
        "moe_aux_loss_coeff": 0.0,
        "moe_grouped_gemm": fused,
        "moe_token_dispatcher_type": "allgather",
    }


def expert_names(name: str) -> list[str] | None:
    """Hugging Face names of the weights in one of an expert's matrices; None for other weights."""
    found = _LOCAL.fullmatch(name)
    if found is None:
        return None
    layer, expert, matrix = found.groups()
    stem = f"model.layers.{layer}.mlp.experts.{expert}"
    return [f"{stem}.{part}.weight" for part in _PARTS[matrix]]
