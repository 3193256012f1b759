"""Which modules a transformer layer is made of.

With TransformerEngine its own layers; without it Megatron's plain ones, with torch's fused
attention in place of Megatron's unfused product (measured up to a third slower on a CPU) and our
own norm. Only that second choice is exercised where there is no GPU.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import torch
import torch.nn.functional as F
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_decoder_block_spec
from megatron.core.transformer.module import MegatronModule

from learner.model.norm import RmsNorm


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


class CausalAttention(MegatronModule):  # type: ignore[misc]
    """Causal attention over right-padded rows: padding follows the tokens, so none attends to it.

    Query [s, b, heads, d], key and value [s, b, groups, d] -> context [s, b, heads * d].
    """

    def __init__(
        self,
        config: Any,
        layer_number: int,
        attn_mask_type: Any,
        attention_type: str,
        attention_dropout: float | None = None,
        softmax_scale: float | None = None,
        cp_comm_type: str | None = None,
        pg_collection: Any = None,
    ) -> None:
        super().__init__(config)
        self._scale = softmax_scale

    def forward(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        attention_mask: torch.Tensor | None,
        attn_mask_type: Any = None,
        attention_bias: torch.Tensor | None = None,
        packed_seq_params: Any = None,
    ) -> torch.Tensor:
        out = F.scaled_dot_product_attention(
            query.permute(1, 2, 0, 3),
            key.permute(1, 2, 0, 3),
            value.permute(1, 2, 0, 3),
            is_causal=True,
            scale=self._scale,
            enable_gqa=query.shape[2] != key.shape[2],
        )
        return out.permute(2, 0, 1, 3).flatten(2)
