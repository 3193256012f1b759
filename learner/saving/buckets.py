"""Weights in buckets of bounded size, in the order of their export. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import torch

Named = tuple[str, torch.Tensor]


def buckets(weights: Iterable[Named], most: int) -> Iterator[list[Named]]:
    """Every name once, in lists of at most `most` bytes; a larger tensor is a list of its own.

    Reads at most one tensor of `weights` beyond a list before it yields the list. Skips a name that
    comes again: the last stage exports a tied output layer too, which is the embedding.
    """
    seen: set[str] = set()
    bucket: list[Named] = []
    size = 0
    for name, tensor in weights:
        if name in seen:
            continue
        seen.add(name)
        if bucket and size + tensor.nbytes > most:
            yield bucket
            bucket, size = [], 0
        bucket.append((name, tensor))
        size += tensor.nbytes
    if bucket:
        yield bucket
