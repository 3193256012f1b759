"""The plan of micro-batches: which rows share one, and on which data-parallel rank. Pure.

Invariants
- Every row is in exactly one micro-batch of one rank, and every rank arrives at the same plan.
- A micro-batch holds at most `budget` tokens, or one row that is longer by itself.
- All ranks have the same number of micro-batches, at least one. Ranks that share experts or
  optimizer states meet in every forward pass. Empty micro-batches make up the number.
"""

from __future__ import annotations

from collections.abc import Sequence


def share(lengths: Sequence[int], ranks: int) -> list[list[int]]:
    """Indices for each rank, balanced by tokens: the longest row left goes to the rank with
    least."""
    shares: list[list[int]] = [[] for _ in range(ranks)]
    tokens = [0] * ranks
    for index in sorted(range(len(lengths)), key=lambda i: (-lengths[i], i)):
        rank = min(range(ranks), key=lambda r: (tokens[r], len(shares[r]), r))
        shares[rank].append(index)
        tokens[rank] += lengths[index]
    return shares


def fill(lengths: Sequence[int], indices: Sequence[int], budget: int) -> list[list[int]]:
    """Micro-batches of the chosen rows: first fit, the longest row first.

    Their number is at most 11/9 of the optimum, plus 1 (Dosa 2007). The largest micro-batch comes
    first: a lack of memory shows at a step's start. Inside of a micro-batch the rows are in order
    of length.
    """
    parts: list[list[int]] = []
    tokens: list[int] = []
    for index in sorted(indices, key=lambda i: (-lengths[i], i)):
        for place, taken in enumerate(tokens):
            if taken + lengths[index] <= budget:
                parts[place].append(index)
                tokens[place] += lengths[index]
                break
        else:
            parts.append([index])
            tokens.append(lengths[index])
    order = sorted(range(len(parts)), key=lambda place: -tokens[place])
    return [parts[place] for place in order]


def plan(lengths: Sequence[int], ranks: int, budget: int) -> list[list[list[int]]]:
    """The micro-batches of each rank, each a list of row indices."""
    plans = [fill(lengths, mine, budget) for mine in share(lengths, ranks)]
    count = max(1, *map(len, plans))
    return [parts + [[] for _ in range(count - len(parts))] for parts in plans]
