"""Weights of tokens in a batch's loss, one function an aggregation. Pure.

The loss is the sum of weight times token loss. So any split into micro-batches or ranks gives one
gradient. A sequence without policy tokens has no weight and counts in no mean.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from toolwright.credit.losses import AggregationName


def _token_mean(counts: Sequence[int], _norm: float) -> list[float]:
    return [1.0 / sum(counts)] * len(counts)


def _seq_mean_token_mean(counts: Sequence[int], _norm: float) -> list[float]:
    live = sum(count > 0 for count in counts)
    return [1.0 / (count * live) if count else 0.0 for count in counts]


def _seq_mean_token_sum(counts: Sequence[int], _norm: float) -> list[float]:
    return [1.0 / sum(count > 0 for count in counts)] * len(counts)


def _seq_sum_token_sum_norm(counts: Sequence[int], norm: float) -> list[float]:
    return [1.0 / norm] * len(counts)


WEIGHTS: Mapping[str, Callable[[Sequence[int], float], list[float]]] = {
    "token-mean": _token_mean,
    "seq-mean-token-mean": _seq_mean_token_mean,
    "seq-mean-token-sum": _seq_mean_token_sum,
    "seq-sum-token-sum-norm": _seq_sum_token_sum_norm,
}
"""(policy tokens of each sequence, norm) -> weight of one token of each sequence, by the names of
`toolwright.credit.losses.AGGREGATIONS`."""


def token_weights(
    counts: Sequence[int], aggregation: AggregationName, *, norm: float = 1.0
) -> list[float]:
    """Weight of one token of each sequence of the whole (global) batch.

    counts: policy tokens of each sequence. norm: divisor of seq-sum-token-sum-norm.
    """
    if not any(counts):
        return [0.0] * len(counts)
    return WEIGHTS[aggregation](counts, norm)
