"""Makes an index folder, step by step; whatever is whole is not made again.

    plan.json -> offsets.npy -> bm25/ -> vectors/*.npy -> dense.faiss -> manifest.json

An adopted FAISS index takes the place of the vectors.

Every step is written under another name and renamed. Killed at any moment, the build goes on where
it was when it is started again with the same arguments; with others it is refused.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from toolsvc.backends.search.corpus import Corpus, find_offsets
from toolsvc.backends.search.errors import IndexFault
from toolsvc.backends.search.files import fingerprint, write_whole
from toolsvc.backends.search.index import BM25_FOLDER, DENSE_FILE, OFFSETS_FILE
from toolsvc.backends.search.manifest import (
    MANIFEST,
    PLAN,
    Bm25Facts,
    CorpusFacts,
    Dense,
    DenseFacts,
    IndexKind,
    Manifest,
    read,
)
from toolsvc.backends.search.ranking import adopt, bm25, dense
from toolsvc.backends.search.ranking.encoder import Encoder, describe
from toolsvc.backends.search.ranking.words import VERSION as WORDS
from toolsvc.backends.search.types import Vectors

VECTORS_FOLDER = "vectors"
SHARD = 8192
"""Passages a file of vectors: what a kill loses at most."""

Progress = Callable[[str, int, int], object]
"""Step, done, total."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What to build. A kind with vectors needs `encoder`, `vectors` or `faiss`."""

    corpus: Path
    folder: Path
    kind: IndexKind | None = None
    """None = the kind of `faiss`, or BM25 without one."""
    dense: Dense = Dense.HNSW
    """Kind of a hybrid index's vectors."""
    encoder: Path | None = None
    vectors: Path | None = None
    """A .npy file, [passages, dimensions], float32, in the corpus's order."""
    faiss: Path | None = None
    """A FAISS index of the corpus, made by another program."""
    query_prefix: str | None = None
    """Text before each query of the encoder. None = as it was trained."""
    passage_prefix: str | None = None
    """Text before each passage of the encoder. None = as it was trained."""
    shard: int = SHARD


def build(order: Order, progress: Progress = lambda step, done, total: None) -> Manifest:
    """The finished index's manifest. IndexFault for what cannot be built."""
    folder = order.folder
    order = _resolved(order)
    offsets = find_offsets(
        order.corpus, lambda done, total: progress("reading the corpus", done, total)
    )
    manifest = plan(order, passages=len(offsets))
    for begun in (folder / MANIFEST, folder / PLAN):
        if not begun.exists():
            continue
        there = read(begun)
        _refuse_another(order, manifest, there)
        if there.with_words(WORDS) != there:
            shutil.rmtree(folder / BM25_FOLDER, ignore_errors=True)
        elif begun.name == MANIFEST:
            return manifest
    corpus = Corpus(order.corpus, offsets)
    try:
        if order.faiss is not None and manifest.dense is not None:
            adopt.check(order.faiss, corpus, manifest.dense.encoder)
        folder.mkdir(parents=True, exist_ok=True)
        manifest.write(folder / PLAN)
        # An older one goes last: until here a build that was killed starts over from it.
        (folder / MANIFEST).unlink(missing_ok=True)
        write_whole(folder / OFFSETS_FILE, partial(np.save, arr=offsets))
        if manifest.bm25 is not None and not (folder / BM25_FOLDER).exists():
            _build_bm25(corpus, folder / BM25_FOLDER, manifest.bm25, progress)
        if manifest.dense is not None and not (folder / DENSE_FILE).exists():
            _build_dense(order, corpus, manifest.dense, progress)
    finally:
        corpus.close()
    (folder / PLAN).replace(folder / MANIFEST)
    shutil.rmtree(folder / VECTORS_FOLDER, ignore_errors=True)
    return manifest


def plan(order: Order, *, passages: int) -> Manifest:
    """What the index will depend on."""
    facts = None
    if order.kind not in (None, IndexKind.BM25):
        facts = DenseFacts(
            kind=order.dense if order.kind is IndexKind.HYBRID else Dense(order.kind),
            encoder=None
            if order.encoder is None
            else describe(
                order.encoder,
                query_prefix=order.query_prefix,
                passage_prefix=order.passage_prefix,
            ),
            vectors_fingerprint="" if order.vectors is None else fingerprint(order.vectors),
            faiss_fingerprint="" if order.faiss is None else fingerprint(order.faiss),
        )
    return Manifest(
        corpus=CorpusFacts(
            path=order.corpus.resolve(), passages=passages, fingerprint=fingerprint(order.corpus)
        ),
        bm25=Bm25Facts() if order.kind in (IndexKind.BM25, IndexKind.HYBRID) else None,
        dense=facts,
    )


def _resolved(order: Order) -> Order:
    """The order with its kind. Raises IndexFault for options that do not fit each other."""
    given = [name for name in ("encoder", "vectors", "faiss") if getattr(order, name) is not None]
    kind = order.kind or (IndexKind.BM25 if order.faiss is None else None)
    if kind is IndexKind.BM25 and given:
        raise IndexFault(f"a bm25 index has no vectors: leave out --{given[0]}")
    if kind is not IndexKind.BM25 and given != ["encoder", "faiss"] and len(given) != 1:
        raise IndexFault(
            f"--kind {kind} needs vectors: give --encoder FOLDER (a sentence-transformers "
            "model), --vectors FILE.npy that holds them already, or --faiss FILE, one of the three"
        )
    for name, file in (("vectors", order.vectors), ("faiss", order.faiss)):
        if file is not None and not file.is_file():
            raise IndexFault(f"--{name} {file}: there is no such file")
    for name in ("query_prefix", "passage_prefix"):
        if getattr(order, name) is not None and order.encoder is None:
            raise IndexFault(f"--{name.replace('_', '-')} is an encoder's: give --encoder FOLDER")
    if order.faiss is None:
        return replace(order, kind=kind)
    found = adopt.recognise(order.faiss)
    if kind not in (None, IndexKind.HYBRID, IndexKind(found)):
        raise IndexFault(f"--faiss {order.faiss} is of kind {found}: leave out --kind {kind}")
    return replace(order, kind=kind or IndexKind(found), dense=found)


def _refuse_another(order: Order, wanted: Manifest, there: Manifest) -> None:
    """The corpus may have moved, and words may have been split by an older version; all else must
    be the same."""
    same_place = {"corpus": wanted.corpus.model_copy(update={"path": there.corpus.path})}
    if wanted.model_copy(update=same_place) != there.with_words(WORDS):
        raise IndexFault(
            f"{order.folder} holds an index of another corpus, kind or encoder: delete it, or "
            "choose another --output"
        )


def _build_bm25(corpus: Corpus, folder: Path, facts: Bm25Facts, progress: Progress) -> None:
    def report(done: int) -> None:
        if done % 1000 == 0 or done == len(corpus):
            progress("bm25", done, len(corpus))

    bm25.build((passage.contents for passage in corpus.passages()), folder, facts, report)


def _build_dense(order: Order, corpus: Corpus, facts: DenseFacts, progress: Progress) -> None:
    count = len(corpus)
    if order.faiss is not None:
        adopt.place(order.faiss, order.folder / DENSE_FILE, partial(progress, "copying"))
        return
    if facts.encoder is not None:
        shards = _encode(order, corpus, Encoder(facts.encoder), progress)

        def pieces() -> Iterator[Vectors]:
            return (np.load(shard, mmap_mode="r") for shard in shards)
    else:
        assert order.vectors is not None
        given = _given_vectors(order.vectors, count)

        def pieces() -> Iterator[Vectors]:
            return (dense.unit(given[first : first + SHARD]) for first in range(0, count, SHARD))

    dense.build(
        facts.kind,
        count,
        pieces,
        order.folder / DENSE_FILE,
        lambda done: progress(f"indexing ({facts.kind})", done, count),
    )


def _encode(order: Order, corpus: Corpus, encoder: Encoder, progress: Progress) -> list[Path]:
    """Files of vectors, in the corpus's order; those that are there are taken as they are."""
    folder = order.folder / VECTORS_FOLDER
    folder.mkdir(exist_ok=True)
    shards = []
    for first in range(0, len(corpus), order.shard):
        last = min(first + order.shard, len(corpus))
        shard = folder / f"{first:010d}-{last:010d}.npy"
        if not shard.exists():
            vectors = encoder.passages(
                [passage.contents for passage in corpus.passages(first, last)]
            )
            write_whole(shard, partial(np.save, arr=vectors))
        shards.append(shard)
        progress("encoding", last, len(corpus))
    return shards


def _given_vectors(path: Path, count: int) -> Vectors:
    try:
        vectors: Vectors = np.load(path, mmap_mode="r")
    except (OSError, ValueError) as error:
        raise IndexFault(f"{path} is no .npy file of vectors: {error}") from error
    if vectors.ndim != 2 or len(vectors) != count or vectors.dtype != np.float32:
        raise IndexFault(
            f"{path} holds {vectors.dtype} {list(vectors.shape)}, and the corpus has {count} "
            f"passages: it must be float32 [{count}, dimensions], in the corpus's order"
        )
    return vectors
