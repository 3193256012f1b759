"""Context parallelism: the positions of each rank in a packed row, and the gather for the loss.

Every sequence is split into twice as many chunks as there are ranks; rank r has chunks r and
2 * ranks - 1 - r of each, in this order. A causal token attends to all tokens before it. So an
early and a late chunk together are the same work on every rank. TransformerEngine's attention
expects this split.

The layers see a rank's own positions. The loss sees all targets on every rank, and each rank
computes the same loss. A rank's backward pass begins at the targets that its own positions predict.
So gradients are summed over these ranks like over data-parallel ranks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from learner.ranks import parallel


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """One rank's share of a micro-batch with s positions and n targets."""

    index: torch.Tensor
    """[m] int64, indices among the rank's positions that predict its targets."""
    places: torch.Tensor | None = None
    """[s / ranks] int64, the rank's positions; None if it has all."""
    targets: torch.Tensor | None = None
    """[m] int64, the rank's targets; None if it has all."""

    def of_row(self, row: torch.Tensor) -> torch.Tensor:
        """[1, s] -> [1, s / ranks]"""
        return row if self.places is None else row.index_select(1, self.places)

    def of_targets(self, values: torch.Tensor) -> torch.Tensor:
        """[n] -> [m]"""
        return values if self.targets is None else values.index_select(0, self.targets)

    def whole(self, own: torch.Tensor, count: int) -> torch.Tensor:
        """[m, k] of the rank's targets -> [n, k] of all targets, on every rank. count: n.

        Every rank must compute the same loss from it: only its own part's gradient flows back.
        """
        if self.targets is None:
            return own
        out: torch.Tensor = _Whole.apply(own, self.targets, count)  # type: ignore[no-untyped-call]
        return out


def own_share(lengths: Sequence[int], index: torch.Tensor) -> Share:
    """This rank's share, on the host.

    lengths: of the sequences. index: [n] positions that predict the targets.
    """
    ranks = parallel.context_size()
    if ranks == 1:
        return Share(index=index)
    return share(lengths, index, parallel.context_rank(), ranks)


def share(lengths: Sequence[int], index: torch.Tensor, rank: int, ranks: int) -> Share:
    """The share of a given rank, see `own_share`."""
    mine = places(lengths, rank, ranks)
    where = np.full(sum(lengths), -1, dtype=np.int64)
    where[mine] = np.arange(len(mine))
    local = where[index.numpy()]
    return Share(
        index=torch.from_numpy(local[local >= 0]),
        places=torch.from_numpy(mine),
        targets=torch.from_numpy(np.flatnonzero(local >= 0)),
    )


def places(lengths: Sequence[int], rank: int, ranks: int) -> np.ndarray:
    """[sum(lengths) / ranks] positions of a rank. Each length must be a multiple of `chunks`."""
    starts = np.cumsum([0, *lengths])
    pairs = zip(starts, lengths, strict=False)
    return np.concatenate([start + _of_sequence(length, rank, ranks) for start, length in pairs])


def chunks(ranks: int) -> int:
    """Number of chunks of a sequence."""
    return 2 * ranks if ranks > 1 else 1


def _of_sequence(length: int, rank: int, ranks: int) -> np.ndarray:
    if ranks == 1:
        return np.arange(length)
    size = length // chunks(ranks)
    early, late = rank * size, (2 * ranks - 1 - rank) * size
    return np.concatenate([np.arange(early, early + size), np.arange(late, late + size)])


class _Whole(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, own: torch.Tensor, targets: torch.Tensor, count: int) -> torch.Tensor:
        ctx.save_for_backward(targets)
        out = own.new_zeros(count, own.shape[1]).index_copy_(0, targets, own)
        dist.all_reduce(out, group=parallel.context_group())
        return out

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        (targets,) = ctx.saved_tensors
        return grads[0].index_select(0, targets), None, None
