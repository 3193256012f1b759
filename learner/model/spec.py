"""Modules of a transformer layer.

With TransformerEngine they are its own. Without it they are Megatron's plain layers, with our own
norm and torch's fused attention. Megatron's unfused product was up to a third slower on a CPU. A
machine without a GPU only tests the second choice.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

from megatron.core.models.gpt.gpt_layer_specs import get_gpt_decoder_block_spec

from learner.model.norm import RmsNorm
from learner.model.packed import CausalAttention


def has_transformer_engine() -> bool:
    return find_spec("transformer_engine") is not None


def layers(config: Any, vp_stage: int | None = None) -> Any:
    """The block specification for `config` (a TransformerConfig)."""
    fused = has_transformer_engine()
    block = get_gpt_decoder_block_spec(
        config, use_transformer_engine=fused, normalization="RMSNorm", vp_stage=vp_stage
    )
    if not fused:
        block.layer_norm = RmsNorm
        for layer in block.layer_specs:
            attention = layer.submodules.self_attention.submodules
            attention.core_attention = CausalAttention
            layer.submodules.input_layernorm = layer.submodules.pre_mlp_layernorm = RmsNorm
            if config.qk_layernorm:
                attention.q_layernorm = attention.k_layernorm = RmsNorm
    return block
