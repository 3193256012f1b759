"""What one long sequence takes, said before the run and not by a death at a step's end.

A sequence is never split, so the longest one that the recipe allows has to fit. Its logits do not
count: they go through in chunks (see `learner.model.head`). What grows with its length is what the
layers keep for the backward pass.
"""

from __future__ import annotations

from typing import Any

import psutil
import torch

from learner.config.weights import Recompute
from learner.model.head import chunk_bytes
from learner.ranks import device

GIB = 1 << 30
CHUNKS = 4
"""Tensors of a chunk's size that live at a time; measured between 3 and 4."""


MEASURED = 1.1
"""Memory of activations above the sum of `token_bytes`: on an H100 1.08 at 0.6B, 1.10 at 1.7B."""


def free_bytes() -> int:
    """Memory that this rank could still take."""
    if device.has_cuda():
        return int(torch.cuda.mem_get_info()[0])
    return int(psutil.virtual_memory().available)


def token_bytes(config: Any, recompute: Recompute) -> int:
    """What a token's activations take on a rank. config: Megatron's, of the model.

    A layer keeps its two norms' inputs and outputs, queries, keys and values before and after their
    norms and positions, attention's output, and four tensors of the feed-forward part. `full` keeps
    its input alone, and one layer's at a time.
    """
    head = config.kv_channels
    query = head * config.num_attention_heads
    key_value = 2 * head * config.num_query_groups
    width = config.ffn_hidden_size
    if config.num_moe_experts:
        width = config.moe_ffn_hidden_size * config.moe_router_topk
    spread = 4 * query + 2 * key_value + 4 * width
    layer = 4 * config.hidden_size + spread // config.tensor_model_parallel_size
    layers = config.num_layers // config.pipeline_model_parallel_size
    numbers = config.hidden_size * layers + layer if recompute == "full" else layer * layers
    return int(MEASURED * numbers * config.params_dtype.itemsize / config.context_parallel_size)


def too_long(tokens: int, a_token: int, free: int, *, mend: str) -> str | None:
    """A sentence where a sequence of that many tokens does not fit by itself.

    a_token: `token_bytes`.
    """
    left = max(0, free - CHUNKS * chunk_bytes())
    need = tokens * a_token
    if need <= left:
        return None
    return (
        f"a sequence of {tokens} tokens takes about {need / GIB:.1f} GiB for its activations "
        f"alone, and {left / GIB:.1f} GiB are free: {mend} to at most {left // a_token}, "
        "or set recompute = 'full', or the run may end without memory"
    )
