"""Which positions of a packed row are whose."""

from __future__ import annotations

import pytest
import torch

from learner.model.packed import packed
from learner.ranks import parallel
from learner.ranks.context import places, share


def test_early_and_late_chunks_of_each_sequence_go_together() -> None:
    """The order that TransformerEngine cuts packed sequences in."""
    lengths = (8, 4)
    assert places(lengths, 0, 2).tolist() == [0, 1, 6, 7, 8, 11]
    assert places(lengths, 1, 2).tolist() == [2, 3, 4, 5, 9, 10]


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_every_position_and_every_target_is_one_ranks(ranks: int) -> None:
    lengths = [2 * ranks * count for count in (1, 5, 2)]
    row = torch.arange(sum(lengths)) * 10
    index = torch.tensor([0, 3, 2 * ranks + 1, len(row) - 1])
    shares = [share(lengths, index, rank, ranks) for rank in range(ranks)]
    assert torch.cat([one.places for one in shares]).sort().values.tolist() == list(range(len(row)))
    assert torch.cat([one.targets for one in shares]).sort().values.tolist() == [0, 1, 2, 3]
    for one in shares:
        # What is predicted from a position there is predicted from the same token.
        assert torch.equal(row[one.places][one.index], row[index[one.targets]])


def test_the_causal_work_of_ranks_is_equal() -> None:
    """A token at position p of its sequence attends to p + 1."""
    lengths, ranks = (48, 16), 4
    seen = torch.cat([torch.arange(length) + 1 for length in lengths])
    assert len({int(seen[places(lengths, rank, ranks)].sum()) for rank in range(ranks)}) == 1


def test_transformer_engine_is_told_that_nothing_lies_between_sequences(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It looks whether the ends with filling are the same object, not whether they are the same."""
    monkeypatch.setattr(parallel, "context_size", lambda: 2)
    told = packed((8, 4), torch.zeros(1, 6, dtype=torch.int64), fused=True)
    assert told.cu_seqlens_q.tolist() == [0, 8, 12]
    assert told.cu_seqlens_q_padded is told.cu_seqlens_q
    assert told.cu_seqlens_kv_padded is told.cu_seqlens_kv
    assert (told.qkv_format, told.max_seqlen_q) == ("thd", 8)
