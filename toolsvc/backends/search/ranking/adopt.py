"""Adopts a FAISS index that another program made.

Invariants
- The index has one vector for each passage, and the ids of its vectors are the passages' line
  numbers. Every check comes before the first write.
- The file is not changed. The index folder holds a hard link to it, or a copy.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import faiss
import numpy as np

from toolsvc.backends.search.corpus import Corpus
from toolsvc.backends.search.errors import IndexFault
from toolsvc.backends.search.files import write_whole
from toolsvc.backends.search.manifest import Dense, EncoderFacts
from toolsvc.backends.search.ranking import dense
from toolsvc.backends.search.ranking.encoder import Encoder

PIECE = 64 << 20
LOOKED_AT = 1000
"""Passages whose id is compared with their line number, spread evenly over the corpus."""
_KINDS = ((faiss.IndexHNSW, Dense.HNSW), (faiss.IndexIVF, Dense.IVF), (faiss.IndexFlat, Dense.FLAT))
_METRICS = (faiss.METRIC_INNER_PRODUCT, faiss.METRIC_L2)


def recognise(path: Path) -> Dense:
    """The kind of a FAISS file. Raises IndexFault for a file of another kind or metric."""
    return _recognised(path, _read(path))


def check(path: Path, corpus: Corpus, encoder: EncoderFacts | None) -> None:
    """Raises IndexFault unless the index fits the corpus and the encoder."""
    index = _read(path)
    kind = _recognised(path, index)
    if index.ntotal != len(corpus):
        raise IndexFault(
            f"{path} has {index.ntotal} vectors, and corpus {corpus.path} has {len(corpus)} "
            "passages: give the corpus that the index was made from"
        )
    if kind is Dense.IVF:
        _check_ids(path, index)
    for row in np.unique(np.linspace(0, len(corpus) - 1, LOOKED_AT).astype(int)).tolist():
        if (found := corpus[row].id) != str(row):
            raise IndexFault(
                f"corpus {corpus.path}: the passage of line {row} has id {found!r}; {path} finds "
                "passages by line number, so each id must be its line number, from 0"
            )
    if encoder is not None:
        _check_encoder(path, index, encoder)


def place(source: Path, target: Path, progress: Callable[[int, int], object]) -> None:
    """Links `target` to `source`, or copies it where no link can be made, as across file systems.

    progress: bytes copied and bytes in all.
    """
    source = source.resolve()
    try:
        os.link(source, target)
    except OSError:
        write_whole(target, partial(_copy, source, progress))


def _read(path: Path) -> Any:
    try:
        return dense.read(path)
    except RuntimeError as error:
        raise IndexFault(f"--faiss {path} cannot be read as a FAISS index: {error}") from error


def _recognised(path: Path, index: Any) -> Dense:
    name = type(index).__name__
    for known, kind in _KINDS:
        if isinstance(index, known):
            if index.metric_type not in _METRICS:
                raise IndexFault(
                    f"{path} is an {name} of metric {index.metric_type}: only inner product and "
                    "L2 are supported"
                )
            return kind
    raise IndexFault(f"{path} is an {name}: only IndexFlat, IndexHNSW and IndexIVF are supported")


def _check_ids(path: Path, index: Any) -> None:
    """Raises IndexFault unless the lists hold each number below their count once."""
    seen = np.zeros(index.ntotal, bool)
    lists = index.invlists
    for number in range(lists.nlist):
        if size := lists.list_size(number):
            ids = faiss.rev_swig_ptr(lists.get_ids(number), size)
            seen[ids[(ids >= 0) & (ids < index.ntotal)]] = True
    if not seen.all():
        raise IndexFault(
            f"{path} has no vector with id {int(np.argmin(seen))}: the ids of its vectors must be "
            "the line numbers of the corpus, from 0"
        )


def _check_encoder(path: Path, index: Any, facts: EncoderFacts) -> None:
    made = Encoder(facts).queries([""]).shape[1]
    if made != index.d:
        raise IndexFault(
            f"{path} has vectors of {index.d} numbers, and encoder {facts.path} makes {made}: "
            "give the encoder that made them"
        )
    if index.metric_type == faiss.METRIC_L2 and abs((length := _length(index)) - 1) > 0.01:
        raise IndexFault(
            f"{path} compares by L2 and has a vector of length {length:.3g}: an encoder's queries "
            "have length 1, so leave out --encoder and send the vector with each query"
        )


def _length(index: Any) -> float:
    """Length of one vector of an index."""
    vector = np.empty(index.d, np.float32)
    if isinstance(index, faiss.IndexIVF):
        lists: Any = index.invlists
        filled = next(number for number in range(lists.nlist) if lists.list_size(number))
        index.reconstruct_from_offset(filled, 0, faiss.swig_ptr(vector))
    else:
        index.reconstruct(0, vector)
    return float(np.linalg.norm(vector))


def _copy(source: Path, progress: Callable[[int, int], object], target: BinaryIO) -> None:
    size = source.stat().st_size
    with source.open("rb") as file:
        while piece := file.read(PIECE):
            target.write(piece)
            progress(file.tell(), size)
