"""Sequences one after the other in one row: positions and attention that keep them apart.

With TransformerEngine its attention reads the ends of the sequences (Megatron's "thd" layout), and
so do Megatron's rotary positions. Without it rotary positions are looked up token by token, and
attention is one call for the whole row where `varlen` fits the tensors. Elsewhere each run of
sequences of one length is one call of torch's causal attention, without any mask.

Under context parallelism a rank has its positions of every sequence (see `ranks.context`).
TransformerEngine passes keys and values around; without it every rank gathers those of the others,
and a mask says what its queries see.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from megatron.core.models.common.embeddings.rotary_pos_embedding import RotaryEmbedding
from megatron.core.packed_seq_params import PackedSeqParams
from megatron.core.tensor_parallel import gather_from_sequence_parallel_region
from megatron.core.transformer.module import MegatronModule

from learner.model import varlen
from learner.ranks import context, parallel


@dataclass
class Packed(PackedSeqParams):  # type: ignore[misc]
    """What every layer is told about a packed row.

    runs: (sequences, their length) in order. ends: [sequences + 1] int32 cumulative lengths on the
    device, for `varlen`; None on a CPU and under context parallelism. positions: [s] of each of the
    rank's tokens in its sequence, or [3, s] of a row with images. Of context parallelism alone:
    order, [all s] where each token of the row is among those of all ranks, one rank after the
    other; masks, of each run, [own, all] whether a query of a sequence sees a key.
    """

    runs: tuple[tuple[int, int], ...] = ()
    ends: torch.Tensor | None = None
    positions: torch.Tensor | None = None
    order: torch.Tensor | None = None
    masks: tuple[torch.Tensor | None, ...] = ()


def packed(lengths: Sequence[int], positions: torch.Tensor, *, fused: bool) -> Packed:
    """lengths: of the sequences, on the host. positions: [1, s], the rank's, or [3, s] of a row
    with images. fused: for TransformerEngine."""
    longest = max(lengths)
    own = positions[0] if len(positions) == 1 else positions
    ranks = parallel.context_size()
    if fused:
        ends = _ends(lengths, positions.device)
        # Its context parallelism wants these too, and takes another object for other padding. What
        # fills a sequence up counts as part of it: nothing before it sees it.
        padded = ends if ranks > 1 else None
        return Packed(
            qkv_format="thd",
            cu_seqlens_q=ends,
            cu_seqlens_kv=ends,
            max_seqlen_q=longest,
            max_seqlen_kv=longest,
            cu_seqlens_q_padded=padded,
            cu_seqlens_kv_padded=padded,
            # Megatron takes frequencies of all tokens for those; of text it makes them itself.
            positions=own if own.dim() == 2 else None,
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
    everyones = np.concatenate([context.places(lengths, rank, ranks) for rank in range(ranks)])
    return torch.from_numpy(np.argsort(everyones))


def _mask(length: int, ranks: int) -> torch.Tensor:
    own = torch.from_numpy(context.places((length,), parallel.context_rank(), ranks))
    return own.unsqueeze(1) >= torch.arange(length)


class PackedRotary(RotaryEmbedding):  # type: ignore[misc]
    """Rotary positions of each token of a packed row; Megatron's own for any other.

    sections: of M-RoPE, how many frequencies turn by time, height and width.
    """

    sections: tuple[int, ...] = ()
    _positions: torch.Tensor | None = None

    def get_rotary_seq_len(self, *args: Any, **kwargs: Any) -> int:
        """Megatron asks this first, and shows the packed sequences here alone."""
        told = args[4] if len(args) > 4 else kwargs.get("packed_seq_params")
        self._positions = told.positions if isinstance(told, Packed) else None
        length: int = super().get_rotary_seq_len(*args, **kwargs)
        return length

    def forward(self, max_seq_len: int, *args: Any, **kwargs: Any) -> torch.Tensor:
        """[max_seq_len or s, 1, 1, d]"""
        if self._positions is None:
            out: torch.Tensor = super().forward(max_seq_len, *args, **kwargs)
            return out
        if self._positions.dim() == 2:
            return self._of_images(self._positions)
        # A power of two: Megatron keeps the tables of the lengths that it was asked for.
        power = 1 << (max_seq_len - 1).bit_length()
        # "Packed": whole, not this rank's part of one long sequence.
        table: torch.Tensor = super().forward(power, packed_seq=True)
        return table.index_select(0, self._positions)

    def _of_images(self, positions: torch.Tensor) -> torch.Tensor:
        """[3, s] -> [s, 1, 1, d] (Qwen2-VL's M-RoPE)."""
        angles = positions.unsqueeze(-1).float() * self.inv_freq
        chosen = [own.split(self.sections, -1)[way] for way, own in enumerate(angles)]
        half = torch.cat(chosen, -1)
        return torch.cat([half, half], -1)[:, None, None, :]


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
            key, value = (_everyones(t, packed_seq_params.order) for t in (key, value))
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


def _everyones(own: torch.Tensor, order: torch.Tensor) -> torch.Tensor:
    """[own, groups, d] -> [all, groups, d] in the order of the row."""
    gathered: torch.Tensor = gather_from_sequence_parallel_region(
        own, group=parallel.context_group()
    )
    return gathered.index_select(0, order)
