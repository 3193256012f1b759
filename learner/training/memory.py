"""Memory of the longest sequence, checked before the run.

A sequence is never split, so the longest one that the recipe allows has to fit. Its logits do not
count: they are computed in chunks (see `learner.model.head`). The activations that layers keep for
the backward pass grow with its length.
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
"""Number of tensors of a chunk's size that live at a time; measured between 3 and 4."""
MEASURED_FACTOR = 1.1
"""Measured memory of activations over the sum in `token_bytes`. On an H100: 1.08 at 0.6B, 1.10 at
1.7B."""


def free_bytes() -> int:
    """Free memory of this rank, in bytes."""
    if device.has_cuda():
        return int(torch.cuda.mem_get_info()[0])
    return int(psutil.virtual_memory().available)


def token_bytes(config: Any, recompute: Recompute) -> int:
    """Size of a token's activations on a rank, in bytes. config: Megatron's, of the model.

    A layer keeps its two norms' inputs and outputs, attention's output, and four tensors of the
    feed-forward part. It keeps queries, keys and values before and after norms and positions. With
    `full` a layer keeps its input alone, and one layer at a time has the rest.
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
    return int(
        MEASURED_FACTOR * numbers * config.params_dtype.itemsize / config.context_parallel_size
    )


def too_long(tokens: int, a_token: int, free: int, *, fix: str) -> str | None:
    """A warning if a sequence of that many tokens does not fit; None if it does.

    a_token: `token_bytes`. fix: the start of the advice, "set KEY".
    """
    left = max(0, free - CHUNKS * chunk_bytes())
    need = tokens * a_token
    if need <= left:
        return None
    return (
        f"a sequence of {tokens} tokens takes about {need / GIB:.1f} GiB for its activations "
        f"alone, and {left / GIB:.1f} GiB are free: {fix} to at most {left // a_token}, "
        "or set recompute = 'full', or the run may run out of memory"
    )
