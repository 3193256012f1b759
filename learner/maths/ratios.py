"""Importance ratios of tokens, and sums and means over their sequences.

Pure functions on the tokens that carry loss, [n] of one micro-batch. `row` [n] names the sequence
of each token; the tokens of one sequence stand together.
"""

from __future__ import annotations

import torch

LOG_RATIO_LIMIT = 20.0


def importance(logp: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """exp(logp - other), the exponent limited to +-20."""
    return limited(logp - other).exp()


def limited(log_ratio: torch.Tensor) -> torch.Tensor:
    """A log-ratio whose exponential is a finite number."""
    return log_ratio.clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT)


def row_sums(values: torch.Tensor, row: torch.Tensor) -> torch.Tensor:
    """[n] -> [n]: at each token the sum over its sequence."""
    if not len(values):
        return values
    begins = torch.ones_like(row)
    begins[1:] = (row[1:] != row[:-1]).to(row.dtype)
    place = begins.cumsum(0) - 1
    return torch.zeros_like(values).index_add(0, place, values)[place]


def row_means(values: torch.Tensor, row: torch.Tensor) -> torch.Tensor:
    """[n] -> [n]: at each token the mean over its sequence."""
    return row_sums(values, row) / row_sums(torch.ones_like(values), row)
