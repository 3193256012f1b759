"""Sequences one after the other in one row: positions and attention that keep them apart.

With TransformerEngine its attention reads the ends of the sequences (Megatron's "thd" layout), and
so do Megatron's rotary positions. Without it each run of sequences of one length is one call of
torch's causal attention, without any mask, and rotary positions are looked up token by token.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby
from typing import Any

import torch
import torch.nn.functional as F
from megatron.core.models.common.embeddings.rotary_pos_embedding import RotaryEmbedding
from megatron.core.packed_seq_params import PackedSeqParams
from megatron.core.transformer.module import MegatronModule


@dataclass
class Packed(PackedSeqParams):  # type: ignore[misc]
    """What every layer is told about a packed row.

    runs: (sequences, their length) in order. positions: [s] of each token in its sequence, or
    [3, s] of a row with images.
    """

    runs: tuple[tuple[int, int], ...] = ()
    positions: torch.Tensor | None = None


def packed(lengths: Sequence[int], positions: torch.Tensor, *, fused: bool) -> Packed:
    """lengths: of the sequences, on the host. positions: [1, s] or [3, s]. fused: for
    TransformerEngine."""
    longest = max(lengths)
    own = positions[0] if len(positions) == 1 else positions
    if fused:
        ends = torch.tensor([0, *accumulate(lengths)], dtype=torch.int32)
        if positions.is_cuda:
            ends = ends.pin_memory().to(positions.device, non_blocking=True)
        return Packed(
            qkv_format="thd",
            cu_seqlens_q=ends,
            cu_seqlens_kv=ends,
            max_seqlen_q=longest,
            max_seqlen_kv=longest,
            # Megatron takes frequencies of all tokens for those; of text it makes them itself.
            positions=own if own.dim() == 2 else None,
        )
    return Packed(
        max_seqlen_q=longest,
        max_seqlen_kv=longest,
        runs=tuple((len(list(run)), length) for length, run in groupby(lengths)),
        positions=own,
    )


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
        table: torch.Tensor = super().forward(power, *args, **kwargs)
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
        runs = packed_seq_params.runs
        sizes = [count * length for count, length in runs]
        # Not slices: the gradient of each would be as large as the whole.
        pieces = zip(*(torch.split(t.squeeze(1), sizes) for t in (query, key, value)), strict=True)
        done = []
        for run, piece in zip(runs, pieces, strict=True):
            rows = (t.unflatten(0, run).transpose(1, 2) for t in piece)
            done.append(self._attend(*rows).transpose(1, 2).flatten(0, 1))
        return torch.cat(done).flatten(1).unsqueeze(1)

    def _attend(self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        """[sequences, heads or groups, length, d] each."""
        return F.scaled_dot_product_attention(
            query,
            key,
            value,
            is_causal=True,
            scale=self._scale,
            enable_gqa=query.shape[1] != key.shape[1],
        )
