"""Attention for a CPU server: SGLang's torch-native backend, in few large operations.

SGLang's own backend asks torch for one attention per request, per layer and per step. For a tiny
policy that is most of a server's time. Here requests of like length share one padded call: decode
and prefill are the same computation, a decoding request being one of a single new token.

Invariants:
- The result is the one of SGLang's loop up to float rounding (1e-6 in float32), whatever else is in
  the batch. Padding repeats the request's last key, which exists and is masked.
- Padding at most doubles each of the two lengths (requests are grouped by powers of two), and no
  score matrix has more than PIECE entries per head.
- What it does not know (cross-attention, encoders, sliding windows, a request too long for PIECE)
  goes to SGLang's loop, unchanged.

It is an SGLang plugin (see the entry point in the dist-info folder beside it), and takes the name
`torch_native`, because SGLang ties settings to that name. Turn it off with SGLANG_PLUGINS=none.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from sglang.srt.layers.attention.attention_registry import register_attention_backend
from sglang.srt.layers.attention.torch_native_backend import TorchNativeAttnBackend
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

SHORTEST = 6  # lengths up to 2**6 are one group: splitting those costs more than it saves
PIECE = 1 << 22  # score entries per head in one call: 16 MiB of mask, a prompt of 2,048 tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """Requests that share a call: `count` of them, padded to `new` queries and `total` keys.

    queries: [count * new] rows of the step's flat query tensor; a padded one repeats the last.
    slots: [count * total] rows of the KV cache; a padded one repeats the last.
    mask: [count, 1, new, total], 0 where the query may look, -inf elsewhere.
    """

    count: int
    queries: Tensor
    slots: Tensor
    mask: Tensor


def group(new: Sequence[int], total: Sequence[int]) -> list[list[int]] | None:
    """Positions of the requests in each piece, or None if one request is too long for any.

    `new` counts the queries of each request in this step, `total` its keys, the new included.
    """
    alike: dict[tuple[int, int], list[int]] = defaultdict(list)
    for position, (queries, keys) in enumerate(zip(new, total, strict=True)):
        if queries * keys > PIECE:
            return None
        shape = (queries - 1).bit_length(), max(SHORTEST, (keys - 1).bit_length())
        alike[shape].append(position)
    pieces = []
    for members in alike.values():
        area = max(new[i] for i in members) * max(total[i] for i in members)
        fit = max(1, PIECE // area)
        pieces += [members[i : i + fit] for i in range(0, len(members), fit)]
    return pieces


def plan(
    new: Sequence[int], total: Sequence[int], table: Tensor, rows: Tensor, dtype: torch.dtype
) -> list[Piece] | None:
    """The pieces of one forward pass, the same for all layers; None = leave it to SGLang's loop.

    `table` is [requests, context]: the KV slot of each position; `rows` the batch's rows in it.
    """
    groups = group(new, total)
    if groups is None:
        return None
    counts, lengths = torch.tensor(new), torch.tensor(total)
    firsts = counts.cumsum(0) - counts
    return [
        _piece(counts[at], lengths[at], firsts[at], table, rows[at], dtype)
        for at in map(torch.tensor, groups)
    ]


def _piece(
    counts: Tensor, lengths: Tensor, firsts: Tensor, table: Tensor, rows: Tensor, dtype: torch.dtype
) -> Piece:
    query = torch.arange(int(counts.max())).minimum(counts[:, None] - 1)
    key = torch.arange(int(lengths.max()))
    position = (lengths - counts)[:, None] + query  # of each query in its sequence
    hidden = key > position[:, :, None]
    return Piece(
        count=len(counts),
        queries=(firsts[:, None] + query).flatten(),
        slots=table[rows[:, None], key.minimum(lengths[:, None] - 1)].flatten(),
        mask=torch.zeros(hidden.shape, dtype=dtype).masked_fill_(hidden, -torch.inf)[:, None],
    )


def attend(
    query: Tensor, output: Tensor, keys: Tensor, values: Tensor, piece: Piece, scale: float | None
) -> None:
    """Fill the piece's rows of `output`.

    query, output: [tokens, heads, width]; keys, values: [slots, KV heads, width]. The query heads
    of one KV head are laid out as further queries of it, so keys are not repeated.
    """
    n, heads, shared = piece.count, query.shape[1], query.shape[1] // keys.shape[1]
    q = query.index_select(0, piece.queries).view(n, -1, heads // shared, shared, query.shape[2])
    q = q.permute(0, 2, 3, 1, 4).flatten(2, 3)
    k = keys.index_select(0, piece.slots).view(n, -1, *keys.shape[1:]).transpose(1, 2)
    v = values.index_select(0, piece.slots).view(n, -1, *values.shape[1:]).transpose(1, 2)
    mask = piece.mask.unsqueeze(2).expand(-1, -1, shared, -1, -1).flatten(2, 3)
    out = scaled_dot_product_attention(q, k.to(q.dtype), v.to(q.dtype), attn_mask=mask, scale=scale)
    out = out.unflatten(2, (shared, -1)).permute(0, 3, 1, 2, 4).flatten(2, 3).flatten(0, 1)
    # A padded query is a copy of the last, so writing it again writes the same.
    output.index_copy_(0, piece.queries, out)


class BatchedAttention(TorchNativeAttnBackend):
    """SGLang's backend with its two inner loops replaced; writing the cache is still SGLang's."""

    def __init__(self, model_runner: Any) -> None:
        super().__init__(model_runner)
        self._dtype: torch.dtype = model_runner.dtype
        self._pieces: list[Piece] | None = None

    def init_forward_metadata(self, forward_batch: Any) -> None:
        """Lay out the pass once, for all layers."""
        super().init_forward_metadata(forward_batch)
        self._pieces = None
        if forward_batch.encoder_lens is not None or self.use_sliding_window_kv_pool:
            return
        total = forward_batch.seq_lens.tolist()
        if forward_batch.forward_mode.is_decode():
            new = [1] * len(total)
        elif forward_batch.extend_seq_lens is not None:
            new = forward_batch.extend_seq_lens.tolist()
        else:
            return
        if all(new):
            table, rows = self.req_to_token_pool.req_to_token, forward_batch.req_pool_indices
            self._pieces = plan(new, total, table, rows, self._dtype)

    def _known(self, options: dict[str, Any]) -> list[Piece] | None:
        unknown = options.get("is_cross_attn") or options.get("sliding_window_size") is not None
        return None if unknown else self._pieces

    def _run_sdpa_forward_decode(
        self,
        query: Tensor,
        output: Tensor,
        k_cache: Tensor,
        v_cache: Tensor,
        *rest: Any,
        **options: Any,
    ) -> Tensor:
        pieces = self._known(options)
        if pieces is None:
            return super()._run_sdpa_forward_decode(
                query, output, k_cache, v_cache, *rest, **options
            )
        for piece in pieces:
            attend(query, output, k_cache, v_cache, piece, options.get("scaling"))
        return output

    def _run_sdpa_forward_extend(
        self,
        query: Tensor,
        output: Tensor,
        k_cache: Tensor,
        v_cache: Tensor,
        *rest: Any,
        **options: Any,
    ) -> Tensor:
        pieces = self._known(options) if options.get("causal") else None
        if pieces is None:
            return super()._run_sdpa_forward_extend(
                query, output, k_cache, v_cache, *rest, **options
            )
        for piece in pieces:
            attend(query, output, k_cache, v_cache, piece, options.get("scaling"))
        return output


def register() -> None:
    """The plugin's entry point; SGLang calls it in each of its processes."""
    register_attention_backend("torch_native")(BatchedAttention)
