"""An index folder, open for questions: words or vectors in, passages out.

Not safe for several threads at once; the batcher gives it one.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

import numpy as np

from toolsvc.backends.search.corpus import Corpus
from toolsvc.backends.search.errors import IndexFault, NoVector, WrongVector
from toolsvc.backends.search.manifest import (
    MANIFEST,
    check_corpus,
    check_encoder,
    check_faiss,
    check_words,
    read,
)
from toolsvc.backends.search.ranking.bm25 import Bm25
from toolsvc.backends.search.ranking.dense import VectorIndex, unit
from toolsvc.backends.search.ranking.encoder import Encoder
from toolsvc.backends.search.ranking.fusion import reciprocal_rank_fusion
from toolsvc.backends.search.types import Hit, Query, Rankings, Vectors

BM25_FOLDER = "bm25"
DENSE_FILE = "dense.faiss"
OFFSETS_FILE = "offsets.npy"
QUERY_CHARACTERS = 2048
"""Characters of a query that count, from its beginning; encoders read 256 to 512 tokens."""
FUSION_DEPTH = 100
"""Passages of each ranking that fusion looks at."""


class Retriever(StrEnum):
    """What ranks the passages."""

    BM25 = "bm25"
    DENSE = "dense"
    HYBRID = "hybrid"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """Where an index and what it was made from are now. None = where the manifest says."""

    folder: Path
    corpus: Path | None = None
    encoder: Path | None = None
    retriever: Retriever | None = None
    """None = all that the index holds."""
    effort: int | None = None
    """Effort of HNSW and IVF; None = their default."""
    threads: int = 1
    """OpenMP threads of a search by vectors."""


class Found(NamedTuple):
    """Answer to a batch: the hits of each query, and the seconds that its encoder took."""

    hits: list[list[Hit]]
    encode_seconds: float


class SearchIndex:
    """IndexFault if the folder cannot be used or is not of this corpus or encoder."""

    def __init__(self, sources: Sources) -> None:
        folder = sources.folder
        manifest = read(folder / MANIFEST)
        corpus = sources.corpus or manifest.corpus.path
        check_corpus(manifest, folder, corpus)
        offsets = np.load(_part(folder, OFFSETS_FILE), mmap_mode="r")
        self._corpus = Corpus(corpus, np.asarray(offsets))
        self._bm25: Bm25 | None = None
        self._dense: VectorIndex | None = None
        self._encoder: Encoder | None = None
        self._adopted = False
        self.retriever = _retriever(
            sources, has_bm25=manifest.bm25 is not None, has_dense=manifest.dense is not None
        )
        if manifest.bm25 is not None and self.retriever is not Retriever.DENSE:
            check_words(manifest.bm25, folder, corpus)
            path = _part(folder, BM25_FOLDER)
            self._bm25 = Bm25(path, manifest.bm25)
            self._check_count(path, len(self._bm25))
        if manifest.dense is not None and self.retriever is not Retriever.BM25:
            path = _part(folder, DENSE_FILE)
            check_faiss(manifest.dense, path)
            self._adopted = bool(manifest.dense.faiss_fingerprint)
            self._dense = VectorIndex(
                path, manifest.dense.kind, effort=sources.effort, threads=sources.threads
            )
            self._check_count(path, len(self._dense))
            facts = manifest.dense.encoder
            if facts is not None:
                where = sources.encoder or facts.path
                check_encoder(facts, folder, where)
                self._encoder = Encoder(facts, where)

    def __len__(self) -> int:
        return len(self._corpus)

    def check(self, query: Query) -> None:
        """NoVector or WrongVector where this query cannot be answered."""
        if self._dense is None:
            return
        if query.vector is None:
            if self._encoder is None:
                raise NoVector
            return
        if query.vector.shape != (self._dense.dimensions,):
            raise WrongVector(
                f"the vector has {query.vector.size} numbers, and those of the index have "
                f"{self._dense.dimensions}"
            )
        if not np.all(np.isfinite(query.vector)):
            raise WrongVector("the vector holds numbers that are not finite")

    def search(self, queries: Sequence[Query], k: int) -> Found:
        """The best `k` passages of each query, best first; fewer where fewer match."""
        k = min(k, len(self))
        texts = [query.text[:QUERY_CHARACTERS] for query in queries]
        depth = k
        if self.retriever is Retriever.HYBRID:
            depth = min(max(k, FUSION_DEPTH), len(self))
        rankings: list[Rankings] = []
        encode_seconds = 0.0
        if self._bm25 is not None:
            rankings.append(self._bm25.search(texts, depth))
        if self._dense is not None:
            began = time.perf_counter()
            vectors = self._vectors(queries, texts, self._dense.dimensions)
            encode_seconds = time.perf_counter() - began
            rankings.append(self._dense.search(vectors, depth))
        ranking = rankings[0] if len(rankings) == 1 else reciprocal_rank_fusion(rankings, k)
        return Found(
            [
                [
                    Hit(self._corpus[row], score)
                    for row, score in zip(rows, scores, strict=True)
                    if row >= 0
                ]
                for rows, scores in zip(ranking.rows.tolist(), ranking.scores.tolist(), strict=True)
            ],
            encode_seconds,
        )

    def close(self) -> None:
        self._corpus.close()

    def _vectors(self, queries: Sequence[Query], texts: Sequence[str], dimensions: int) -> Vectors:
        """Given ones at length 1, or as they are for an adopted index, whose vectors may have any
        length. The others come from the encoder, all in one batch."""
        vectors = np.zeros((len(queries), dimensions), np.float32)
        missing = []
        for number, query in enumerate(queries):
            if query.vector is None:
                missing.append(number)
            else:
                vectors[number] = query.vector
        if len(missing) < len(queries) and not self._adopted:
            vectors = unit(vectors)
        if missing:
            if self._encoder is None:
                raise NoVector
            vectors[missing] = self._encoder.queries([texts[row] for row in missing])
        return vectors

    def _check_count(self, part: Path, count: int) -> None:
        if count != len(self._corpus):
            raise IndexFault(
                f"{part} is of {count} passages, the corpus has {len(self._corpus)}: delete "
                f"{part.parent} and build the index again"
            )


def _part(folder: Path, name: str) -> Path:
    if not (folder / name).exists():
        raise IndexFault(f"{folder / name} is missing: delete {folder} and build the index again")
    return folder / name


def _retriever(sources: Sources, *, has_bm25: bool, has_dense: bool) -> Retriever:
    wanted = sources.retriever
    if wanted is None:
        if has_bm25 and has_dense:
            return Retriever.HYBRID
        return Retriever.BM25 if has_bm25 else Retriever.DENSE
    if (wanted is not Retriever.DENSE and not has_bm25) or (
        wanted is not Retriever.BM25 and not has_dense
    ):
        kinds = {(True, False): "BM25", (False, True): "vectors"}[(has_bm25, has_dense)]
        raise IndexFault(
            f"index {sources.folder} has only {kinds}, not what {wanted} needs: build one with "
            "`toolsvc index build CORPUS --kind hybrid`, or leave out search.kind"
        )
    return wanted
