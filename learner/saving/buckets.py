"""Weights in runs that fit a bound of bytes, in the order in which they are exported. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import torch

Named = tuple[str, torch.Tensor]


def buckets(weights: Iterable[Named], most: int) -> Iterator[list[Named]]:
    """Every name once, in lists of at most `most` bytes; a larger tensor is a list alone.

    At most one tensor beyond a list is drawn from `weights` before the list is given away. A name
    that comes again is passed over: a tied output layer is exported by the last stage too, and is
    the embedding.
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
