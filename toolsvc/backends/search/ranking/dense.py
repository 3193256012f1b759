"""Retrieval by vectors: FAISS, inner product of unit vectors, which is their cosine.

Indices are mapped from disk, so that several processes share their pages. By default one thread
searches: a batch of queries is one call, and OpenMP threads that wait for their next work keep the
event loop from its processor.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import faiss
import numpy as np

from toolsvc.backends.search.errors import IndexFault
from toolsvc.backends.search.manifest import Dense
from toolsvc.backends.search.types import Rankings, Vectors

HNSW_NEIGHBOURS = 32
HNSW_BUILD_EFFORT = 100
"""efConstruction."""
HNSW_EFFORT = 64
"""efSearch, the default."""
IVF_PROBES = 16
"""nprobe, the default."""
IVF_ROUNDS = 10
_TRAINED_BY = 64
"""Vectors a cluster that IVF is trained with; FAISS warns below 39."""


def build(
    kind: Dense,
    count: int,
    pieces: Callable[[], Iterable[Vectors]],
    path: Path,
    progress: Callable[[int], object] = lambda done: None,
) -> None:
    """Writes the index of `count` vectors, which `pieces` yields in their order, each time anew."""
    dimensions = next(iter(pieces())).shape[1]
    index = _empty(kind, dimensions, count)
    if not index.is_trained:
        index.train(_sample(pieces(), count, _TRAINED_BY * index.nlist))
    done = 0
    for piece in pieces():
        index.add(np.ascontiguousarray(piece))
        done += len(piece)
        progress(done)
    partial = path.with_name(path.name + ".partial")
    faiss.write_index(index, str(partial))
    partial.replace(path)


def _empty(kind: Dense, dimensions: int, count: int) -> Any:
    metric = faiss.METRIC_INNER_PRODUCT
    if kind is Dense.HNSW:
        graph = faiss.IndexHNSWFlat(dimensions, HNSW_NEIGHBOURS, metric)
        graph.hnsw.efConstruction = HNSW_BUILD_EFFORT
        return graph
    if kind is Dense.IVF:
        # FAISS's guidelines for up to a million vectors: 4 to 16 times the root of their number.
        clusters = max(1, min(round(4 * math.sqrt(count)), count // 39))
        coarse = faiss.IndexFlatIP(dimensions)
        lists = faiss.IndexIVFFlat(coarse, dimensions, clusters, metric)
        lists.cp.niter = IVF_ROUNDS
        return lists
    return faiss.IndexFlatIP(dimensions)


def _sample(pieces: Iterable[Vectors], count: int, most: int) -> Vectors:
    """At most `most` vectors, evenly spread."""
    step = max(1, math.ceil(count / most))
    return np.concatenate([piece[::step] for piece in pieces])


def read(path: Path) -> Any:
    """A FAISS index, mapped. Raises RuntimeError if FAISS cannot read the file."""
    return faiss.read_index(str(path), faiss.IO_FLAG_MMAP_IFC)


class VectorIndex:
    """A built index, or an adopted one."""

    def __init__(
        self, path: Path, kind: Dense, *, effort: int | None = None, threads: int = 1
    ) -> None:
        """`effort`: efSearch of HNSW, nprobe of IVF; more finds more and takes longer. `threads`:
        OpenMP threads of one search."""
        try:
            index = read(path)
        except RuntimeError as error:
            raise IndexFault(
                f"{path} cannot be read: delete its folder and build the index again"
            ) from error
        if kind is Dense.HNSW:
            index.hnsw.efSearch = effort or HNSW_EFFORT
        if kind is Dense.IVF:
            index.nprobe = effort or IVF_PROBES
        self._index = index
        self._threads = threads
        # Of L2, FAISS gives squared distances, which are best when small.
        self._sign = -1 if index.metric_type == faiss.METRIC_L2 else 1

    def __len__(self) -> int:
        return int(self._index.ntotal)

    @property
    def dimensions(self) -> int:
        return int(self._index.d)

    def search(self, vectors: Vectors, k: int) -> Rankings:
        """The best `k` of each of [queries, dimensions]."""
        # OpenMP keeps this number for each calling thread.
        faiss.omp_set_num_threads(self._threads)
        scores, rows = self._index.search(np.ascontiguousarray(vectors, np.float32), k)
        return Rankings(rows, self._sign * scores)


def unit(vectors: Vectors) -> Vectors:
    """Every row at length 1; a row of zeros stays."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.asarray(vectors / np.maximum(lengths, 1e-12), np.float32)
