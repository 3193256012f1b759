"""Several rankings into one, by rank alone; pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from toolsvc.backends.search.types import Rankings

RANK_CONSTANT = 60
"""k of the paper, which found the result to depend little on it."""


def reciprocal_rank_fusion(rankings: Sequence[Rankings], k: int) -> Rankings:
    """The best `k` by sum over rankings of 1 / (60 + rank), rank from 1.

    Cormack, Clarke, Büttcher, "Reciprocal Rank Fusion outperforms Condorcet and individual Rank
    Learning Methods", SIGIR 2009, section 2. Ranks are used because BM25 scores and cosines have no
    common scale. Equal sums: the lower passage number first.
    """
    queries = len(rankings[0].rows)
    rows = np.full((queries, k), -1, np.int64)
    scores = np.zeros((queries, k), np.float32)
    for query in range(queries):
        sums: defaultdict[int, float] = defaultdict(float)
        for ranking in rankings:
            for rank, row in enumerate(ranking.rows[query].tolist(), start=1):
                if row >= 0:
                    sums[row] += 1.0 / (RANK_CONSTANT + rank)
        best = sorted(sums.items(), key=lambda item: (-item[1], item[0]))[:k]
        for place, (row, score) in enumerate(best):
            rows[query, place] = row
            scores[query, place] = score
    return Rankings(rows, scores)
