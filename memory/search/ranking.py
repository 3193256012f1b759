"""The hybrid score of a tool for a query, and the best by it (SEARL, equation 9). Pure."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Scores = npt.NDArray[np.float64]

ALPHA = 0.5
"""Share of the words; the rest is the embeddings'."""


def hybrid(text: Scores, semantic: Scores, alpha: float = ALPHA) -> Scores:
    """alpha * text + (1 - alpha) * semantic, each [n]."""
    return alpha * text + (1 - alpha) * semantic


def best(scores: Scores, k: int) -> list[int]:
    """The places of the k largest, the smaller place first among equals."""
    k = min(k, len(scores))
    if k <= 0:
        return []
    kth = np.partition(scores, len(scores) - k)[len(scores) - k]
    near = np.flatnonzero(scores >= kth)  # the k largest and those that equal the last of them
    order = np.argsort(-scores[near], kind="stable")
    return [int(place) for place in near[order[:k]]]
