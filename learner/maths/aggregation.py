"""Weights of tokens in a batch's loss, one function an aggregation. Pure.

The loss is the sum of weight times token loss. So any split into micro-batches or ranks gives one
gradient. A unit is what a mean over sequences counts: a trajectory with all its sequences, or each
sequence by itself. A unit without policy tokens has no weight and counts in no mean.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence

from toolwright.credit.losses import AggregationName


def _token_mean(counts: Sequence[float], copies: Sequence[float], _norm: float) -> list[float]:
    tokens = sum(count * copy for count, copy in zip(counts, copies, strict=True))
    return [1.0 / tokens] * len(counts)


def _seq_mean_token_mean(
    counts: Sequence[float], copies: Sequence[float], _norm: float
) -> list[float]:
    live = sum(copy for count, copy in zip(counts, copies, strict=True) if count)
    return [1.0 / (count * live) if count else 0.0 for count in counts]


def _seq_mean_token_sum(
    counts: Sequence[float], copies: Sequence[float], _norm: float
) -> list[float]:
    live = sum(copy for count, copy in zip(counts, copies, strict=True) if count)
    return [1.0 / live] * len(counts)


def _seq_sum_token_sum_norm(
    counts: Sequence[float], _copies: Sequence[float], norm: float
) -> list[float]:
    return [1.0 / norm] * len(counts)


WEIGHTS: Mapping[str, Callable[[Sequence[float], Sequence[float], float], list[float]]] = {
    "token-mean": _token_mean,
    "seq-mean-token-mean": _seq_mean_token_mean,
    "seq-mean-token-sum": _seq_mean_token_sum,
    "seq-sum-token-sum-norm": _seq_sum_token_sum_norm,
}
"""(policy tokens of each unit, copies of each unit, norm) -> weight of one token of each unit, by
the names of `toolwright.credit.losses.AGGREGATIONS`."""


def token_weights(
    counts: Sequence[int],
    aggregation: AggregationName,
    *,
    norm: float = 1.0,
    trajectories: Sequence[str] | None = None,
    copies: Sequence[float] | None = None,
) -> list[float]:
    """Weight of one token of each sequence of the whole (global) batch.

    counts: policy tokens of each sequence. norm: divisor of seq-sum-token-sum-norm. trajectories:
    trajectory of each sequence, which is then the unit of means; None = each sequence is a unit.
    copies: each sequence counts as that many copies of it, 0 or more; None = 1 each.
    """
    copies = [1.0] * len(counts) if copies is None else copies
    sizes = [copy * count for copy, count in zip(copies, counts, strict=True)]
    if not any(sizes):
        return [0.0] * len(counts)
    weigh = WEIGHTS[aggregation]
    if trajectories is None:
        found = weigh(counts, copies, norm)
    else:
        units: dict[str, float] = defaultdict(float)
        for trajectory, size in zip(trajectories, sizes, strict=True):
            units[trajectory] += size
        of_unit = dict(zip(units, weigh(list(units.values()), [1] * len(units), norm), strict=True))
        found = [of_unit[trajectory] for trajectory in trajectories]
    return [copy * weight for copy, weight in zip(copies, found, strict=True)]
