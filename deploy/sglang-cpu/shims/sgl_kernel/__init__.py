"""Stands in for the CPU build of `sgl_kernel`, which no package registry offers.

On its CPU platform SGLang imports a handful of names from this package while its modules load. On
a processor without AMX it calls none of them for ordinary decoding: every operation of the model
goes to SGLang's own torch code. So the names have to exist, and this module owns nothing else.

Invariant: nothing is faked. A name either computes what the kernel computes
(`assign_req_to_token_pool_cpu`), or raises `NotImplementedError` with its own name. Those that
raise belong to speculative decoding, which the launcher leaves off. `torch.ops.sgl_kernel` holds
no kernel, so a model that needs one (Qwen3-Next, Qwen3.5, some mixtures of experts) fails aloud.
Qwen3.5's are declared there, names alone: SGLang's image processor of Qwen-VL imports Qwen3.5 too.
"""

from collections.abc import Callable
from typing import NoReturn

from torch import Tensor
from torch.library import Library

SPECULATIVE_ONLY = (
    "assign_draft_cache_locs_contiguous_cpu",
    "assign_extend_cache_locs_cpu",
    "build_tree_kernel_efficient_cpu",
    "copy_all_layer_kv_cache_cpu",
    "fill_accept_out_cache_loc_cpu",
    "fill_bonus_tokens_cpu",
    "rotate_input_ids_cpu",
    "verify_tree_greedy_cpu",
)
QWEN3_5_ONLY = (
    "fused_qk_gemma_rmsnorm_cpu",
    "fused_qk_gemma_rmsnorm_with_gate_cpu",
    "fused_qkvzba_split_reshape_cat_contiguous_cpu",
    "fused_sigmoid_mul_cpu",
)


def assign_req_to_token_pool_cpu(
    req_pool_indices: Tensor,
    req_to_token: Tensor,
    start_offset: Tensor,
    end_offset: Tensor,
    out_cache_loc: Tensor,
    pool_len: int,
) -> None:
    """Write newly allocated KV-cache slots into the request table, in place.

    `req_to_token` is [requests, pool_len]; row `req_pool_indices[i]` gets the slots of its columns
    `start_offset[i]:end_offset[i]`, taken one request after another from the flat `out_cache_loc`.
    Raises IndexError where a request would pass the row's end.
    """
    rows, starts, ends = (t.tolist() for t in (req_pool_indices, start_offset, end_offset))
    if max(ends, default=0) > pool_len:
        raise IndexError(f"a request needs {max(ends)} of the {pool_len} columns of req_to_token")
    slots = out_cache_loc.to(req_to_token.dtype)
    taken = 0
    for row, start, end in zip(rows, starts, ends, strict=True):
        req_to_token[row, start:end] = slots[taken : taken + end - start]
        taken += end - start


def _absent(name: str) -> Callable[..., NoReturn]:
    def raise_absent(*_args: object, **_kwargs: object) -> NoReturn:
        raise NotImplementedError(
            f"sgl_kernel.{name} has no CPU build here: start the server without speculation"
        )

    raise_absent.__name__ = name
    return raise_absent


globals().update({name: _absent(name) for name in SPECULATIVE_ONLY})

_DECLARED = Library("sgl_kernel", "FRAGMENT")  # torch takes the names back with this object
for _name in QWEN3_5_ONLY:
    _DECLARED.define(f"{_name}(...) -> ...")
