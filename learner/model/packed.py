"""Packed sequences in one row: positions and attention that separate them.

TransformerEngine's attention reads the ends of the sequences (Megatron's "thd" layout), and so do
its fused rotary positions. Without that fusion rotary positions are looked up token by token.
Megatron's own way would copy the ends to the host four times in every layer.
Attention is one call for the whole row if `varlen` supports the tensors. Otherwise each run of
sequences of one length is one call of torch's causal attention, without a mask.

Under context parallelism a rank has its positions of every sequence (see `ranks.context`).
TransformerEngine exchanges keys and values. Without it every rank gathers all keys and values, and
a mask limits its queries.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from megatron.core.models.common.embeddings import rope_utils
from megatron.core.models.common.embeddings.rotary_pos_embedding import RotaryEmbedding
from megatron.core.packed_seq_params import PackedSeqParams
from megatron.core.tensor_parallel import gather_from_sequence_parallel_region
from megatron.core.transformer.module import MegatronModule

from learner.model import varlen
from learner.ranks import context, parallel


@dataclass
class Packed(PackedSeqParams):  # type: ignore[misc]
    """Layout of a packed row, for every layer."""

    runs: tuple[tuple[int, int], ...] = ()
    """(number of sequences, their length) of each run, in order."""
    ends: torch.Tensor | None = None
    """[sequences + 1] int32 cumulative lengths on the device, for `varlen`; None on a CPU and under
    context parallelism."""
    positions: torch.Tensor | None = None
    """[s] position of each of the rank's tokens in its sequence; [3, s] for a row with images.
    None for fused rotary positions."""
    order: torch.Tensor | None = None
    """[all s] index of each token of the row in the gathered tokens; context parallelism only."""
    masks: tuple[torch.Tensor | None, ...] = ()
    """[own, all] of each run: whether a query sees a key; context parallelism only."""


def packed(
    lengths: Sequence[int],
    positions: torch.Tensor,
    *,
    fused: bool,
    fused_rope: bool = False,
) -> Packed:
    """Layout of a row. lengths: of the sequences, on the host.

    positions: [1, s] of the rank's tokens, or [3, s] for a row with images. fused: for
    TransformerEngine. fused_rope: for its rotary positions too.
    """
    longest = max(lengths)
    own = positions[0] if len(positions) == 1 else positions
    ranks = parallel.context_size()
    if fused:
        ends = _ends(lengths, positions.device)
        # Its context parallelism needs these too, and takes a different object for padding. Padding
        # counts as part of its sequence: no token before it sees it.
        padded = ends if ranks > 1 else None
        return Packed(
            qkv_format="thd",
            cu_seqlens_q=ends,
            cu_seqlens_kv=ends,
            max_seqlen_q=longest,
            max_seqlen_kv=longest,
            cu_seqlens_q_padded=padded,
            cu_seqlens_kv_padded=padded,
            positions=None if fused_rope else own,
        )
    runs = tuple((len(list(run)), length) for length, run in groupby(lengths))
    order: torch.Tensor | None = None
    masks: tuple[torch.Tensor | None, ...] = (None,) * len(runs)
    if ranks > 1:
        order = _order(lengths, ranks).to(positions.device)
        masks = tuple(_mask(length, ranks).to(positions.device) for _, length in runs)
    return Packed(
        max_seqlen_q=longest,
        max_seqlen_kv=longest,
        runs=runs,
        ends=_ends(lengths, positions.device) if positions.is_cuda and ranks == 1 else None,
        positions=own,
        order=order,
        masks=masks,
    )


def _ends(lengths: Sequence[int], where: torch.device) -> torch.Tensor:
    """[sequences + 1] int32; the host does not wait for the copy."""
    ends = torch.tensor([0, *accumulate(lengths)], dtype=torch.int32)
    return ends.pin_memory().to(where, non_blocking=True) if where.type == "cuda" else ends


def _order(lengths: Sequence[int], ranks: int) -> torch.Tensor:
    gathered = np.concatenate([context.places(lengths, rank, ranks) for rank in range(ranks)])
    return torch.from_numpy(np.argsort(gathered))


def _mask(length: int, ranks: int) -> torch.Tensor:
    own = torch.from_numpy(context.places((length,), parallel.context_rank(), ranks))
    return own.unsqueeze(1) >= torch.arange(length)


class PackedRotary(RotaryEmbedding):  # type: ignore[misc]
    """Rotary positions of each token of a packed row; Megatron's own for any other row."""

    sections: tuple[int, ...] = ()
    """Number of frequencies for time, height and width (M-RoPE)."""
    _positions: torch.Tensor | None = None

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        rope_utils._apply_rotary_pos_emb_thd = rotated

    def get_rotary_seq_len(self, *args: Any, **kwargs: Any) -> int:
        """Megatron calls this first, and only here with the packed sequences."""
        row = args[4] if len(args) > 4 else kwargs.get("packed_seq_params")
        self._positions = row.positions if isinstance(row, Packed) else None
        length: int = super().get_rotary_seq_len(*args, **kwargs)
        return length

    def forward(self, max_seq_len: int, *args: Any, **kwargs: Any) -> torch.Tensor:
        """[max_seq_len or s, 1, 1, d]"""
        if self._positions is None:
            out: torch.Tensor = super().forward(max_seq_len, *args, **kwargs)
            return out
        if self._positions.dim() == 2:
            return self._of_images(self._positions)
        # A power of two: Megatron caches a table for each length.
        power = 1 << (max_seq_len - 1).bit_length()
        # "Packed": the whole table, not this rank's part of one long sequence.
        table: torch.Tensor = super().forward(power, packed_seq=True)
        return table.index_select(0, self._positions)

    def _of_images(self, positions: torch.Tensor) -> torch.Tensor:
        """[3, s] -> [s, 1, 1, d] (Qwen2-VL's M-RoPE)."""
        angles = positions.unsqueeze(-1).float() * self.inv_freq
        chosen = [own.split(self.sections, -1)[way] for way, own in enumerate(angles)]
        half = torch.cat(chosen, -1)
        return torch.cat([half, half], -1)[:, None, None, :]


def rotated(
    tokens: torch.Tensor, _ends: torch.Tensor, angles: torch.Tensor, **options: Any
) -> torch.Tensor:
    """Rotates [s, heads, d] by the angles [s, 1, 1, d] of each token, in any layout of sequences.

    Replaces Megatron's function, which takes angles of each position and reads the ends on the
    host.
    """
    options.pop("cp_group", None)  # the angles are those of the rank's tokens already
    out: torch.Tensor = rope_utils._apply_rotary_pos_emb_bshd(
        tokens.unsqueeze(1), angles, **options
    )
    return out.squeeze(1)


class CausalAttention(MegatronModule):  # type: ignore[misc]
    """Causal attention of packed sequences, or of whole rows.

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
        packed_seq_params: Packed | None = None,
    ) -> torch.Tensor:
        if packed_seq_params is None:
            out = self._attend(*(t.permute(1, 2, 0, 3) for t in (query, key, value)))
            return out.permute(2, 0, 1, 3).flatten(2)
        query, key, value = (t.squeeze(1) for t in (query, key, value))
        ends = packed_seq_params.ends
        if ends is not None and varlen.fits(query.device, query.dtype, query.shape[-1]):
            longest = packed_seq_params.max_seqlen_q
            out = varlen.attend(query, key, value, ends, longest, self._scale)
            return out.flatten(1).unsqueeze(1)
        if packed_seq_params.order is not None:
            key, value = (_gathered(t, packed_seq_params.order) for t in (key, value))
        runs = packed_seq_params.runs
        sizes = [count * length for count, length in runs]
        own = [size * len(query) // len(key) for size in sizes]
        # Not slices: the gradient of each would be as large as the whole.
        pieces = zip(
            *(torch.split(t, of) for t, of in ((query, own), (key, sizes), (value, sizes))),
            strict=True,
        )
        done = []
        for (count, _), mask, piece in zip(runs, packed_seq_params.masks, pieces, strict=True):
            q, k, v = (t.unflatten(0, (count, -1)).transpose(1, 2) for t in piece)
            done.append(self._attend(q, k, v, mask).transpose(1, 2).flatten(0, 1))
        return torch.cat(done).flatten(1).unsqueeze(1)

    def _attend(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        mask: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """[sequences, heads or groups, length, d] each. mask: [queries, keys]; None is causal."""
        if varlen.wants_repeated_keys(query):
            times = query.shape[1] // key.shape[1]
            key, value = (t.repeat_interleave(times, 1) for t in (key, value))
        return F.scaled_dot_product_attention(
            query,
            key,
            value,
            attn_mask=mask,
            is_causal=mask is None,
            scale=self._scale,
            enable_gqa=query.shape[1] != key.shape[1],
        )


def _gathered(own: torch.Tensor, order: torch.Tensor) -> torch.Tensor:
    """[own, groups, d] -> [all, groups, d] of all ranks, in the order of the row."""
    gathered: torch.Tensor = gather_from_sequence_parallel_region(
        own, group=parallel.context_group()
    )
    return gathered.index_select(0, order)
