"""A FAISS index that another program wrote is adopted if it fits, and answers as FAISS does."""

from __future__ import annotations

import errno
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import faiss
import numpy as np
import pytest
from typer.testing import CliRunner

from toolsvc.backends.search.build import Order, build
from toolsvc.backends.search.errors import IndexFault
from toolsvc.backends.search.index import DENSE_FILE, Retriever, SearchIndex, Sources
from toolsvc.backends.search.manifest import IndexKind
from toolsvc.backends.search.ranking import adopt
from toolsvc.backends.search.types import Query
from toolsvc.cli import app

COUNT, DIMENSIONS = 400, 16
EFFORT = 8
RNG = np.random.default_rng(5)
# Lengths differ, so that inner product and L2 give different rankings.
VECTORS = RNG.standard_normal((COUNT, DIMENSIONS), np.float32) * RNG.uniform(0.5, 2, (COUNT, 1))
VECTORS = VECTORS.astype(np.float32)
QUERIES = 3 * RNG.standard_normal((20, DIMENSIONS), np.float32)
METRICS = {"ip": faiss.METRIC_INNER_PRODUCT, "l2": faiss.METRIC_L2}


def write(path: Path, index: Any, vectors: np.ndarray = VECTORS) -> Path:
    """A FAISS file of the vectors."""
    if not index.is_trained:
        index.train(vectors)
    index.add(vectors)
    faiss.write_index(index, str(path))
    return path


def ivf(metric: int = faiss.METRIC_INNER_PRODUCT) -> Any:
    coarse = faiss.IndexFlat(DIMENSIONS, metric)
    index = faiss.IndexIVFFlat(coarse, DIMENSIONS, 10, metric)
    coarse.this.disown()
    index.own_fields = True
    return index


def made(kind: str, metric: str) -> Any:
    if kind == "flat":
        return {"ip": faiss.IndexFlatIP, "l2": faiss.IndexFlatL2}[metric](DIMENSIONS)
    if kind == "hnsw":
        return faiss.IndexHNSWFlat(DIMENSIONS, 8, METRICS[metric])
    return ivf(METRICS[metric])


def write_corpus(path: Path, count: int = COUNT, first: int = 0) -> Path:
    lines = [
        json.dumps({"id": str(first + row), "contents": f'"T {row}"\nword{row} shared'})
        for row in range(count)
    ]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


@pytest.fixture
def order(tmp_path: Path) -> Order:
    """Of a flat index of inner products."""
    return Order(
        corpus=write_corpus(tmp_path / "corpus.jsonl"),
        folder=tmp_path / "index",
        faiss=write(tmp_path / "e5_Flat.index", faiss.IndexFlatIP(DIMENSIONS)),
    )


@pytest.fixture
def encoder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Folder of an encoder whose vectors have 16 numbers."""

    class Encoder:
        def __init__(self, facts: object) -> None: ...

        def queries(self, texts: list[str]) -> np.ndarray:
            return np.zeros((len(texts), DIMENSIONS), np.float32)

    monkeypatch.setattr(adopt, "Encoder", Encoder)
    folder = tmp_path / "encoder"
    folder.mkdir()
    (folder / "config.json").write_text("{}", encoding="utf-8")
    return folder


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("kind", ["flat", "hnsw", "ivf"])
def test_an_adopted_index_answers_as_faiss_does(order: Order, kind: str, metric: str) -> None:
    assert order.faiss is not None
    write(order.faiss, made(kind, metric))
    assert build(order).kind is IndexKind(kind)
    plain: Any = faiss.read_index(str(order.faiss))
    if kind == "hnsw":
        plain.hnsw.efSearch = EFFORT
    if kind == "ivf":
        plain.nprobe = EFFORT
    scores, rows = plain.search(QUERIES, 5)
    index = SearchIndex(Sources(folder=order.folder, effort=EFFORT, threads=2))
    found = index.search([Query(text="", vector=vector) for vector in QUERIES], 5).hits
    assert [[int(hit.passage.id) for hit in hits] for hits in found] == rows.tolist()
    best_first = scores if metric == "ip" else -scores
    assert np.array([[hit.score for hit in hits] for hits in found]) == pytest.approx(
        best_first, rel=1e-4
    )
    index.close()


def test_bm25_is_built_beside_an_adopted_index(order: Order) -> None:
    assert build(replace(order, kind=IndexKind.HYBRID)).kind is IndexKind.HYBRID
    index = SearchIndex(Sources(folder=order.folder, retriever=Retriever.BM25))
    ((hit, *_),) = index.search([Query(text="word17")], 3).hits
    assert hit.passage.id == "17"
    index.close()
    index = SearchIndex(Sources(folder=order.folder))
    assert len(index.search([Query(text="word17", vector=QUERIES[0])], 3).hits[0]) == 3
    index.close()


@pytest.mark.parametrize("shown", [COUNT - 1, COUNT + 1])
def test_an_index_of_another_count_is_refused(order: Order, shown: int) -> None:
    write_corpus(order.corpus, shown)
    with pytest.raises(IndexFault, match=rf"has {COUNT} vectors, and corpus .* has {shown} pass"):
        build(order)
    assert not order.folder.exists()


def test_a_corpus_whose_ids_are_not_line_numbers_is_refused(order: Order) -> None:
    write_corpus(order.corpus, first=1)
    with pytest.raises(IndexFault, match=r"passage of line 0 has id '1'.*must be its line number"):
        build(order)
    assert not order.folder.exists()


def test_the_last_line_of_a_corpus_is_looked_at(order: Order) -> None:
    lines = order.corpus.read_text(encoding="utf-8").splitlines()
    lines[-1] = lines[-1].replace(f'"{COUNT - 1}"', '"other"', 1)
    order.corpus.write_text("\n".join(lines), encoding="utf-8")
    with pytest.raises(IndexFault, match=rf"passage of line {COUNT - 1} has id 'other'"):
        build(order)


@pytest.mark.parametrize("ids", [np.arange(1, COUNT + 1), np.zeros(COUNT, np.int64)])
def test_an_index_whose_ids_are_not_line_numbers_is_refused(order: Order, ids: np.ndarray) -> None:
    index = ivf()
    index.train(VECTORS)
    index.add_with_ids(VECTORS, ids)
    faiss.write_index(index, str(order.faiss))
    with pytest.raises(IndexFault, match=r"has no vector with id [01]: "):
        build(order)
    assert not order.folder.exists()


@pytest.mark.parametrize(
    ("index", "why"),
    [
        (faiss.IndexLSH(DIMENSIONS, 32), r"is an IndexLSH: only IndexFlat, IndexHNSW and IndexIVF"),
        (faiss.IndexIDMap, r"is an IndexIDMap: only"),
        (faiss.IndexScalarQuantizer, r"is an IndexScalarQuantizer: only"),
        (faiss.IndexFlat, r"of metric 2: only inner product and L2"),
    ],
)
def test_an_index_of_another_kind_is_refused_by_name(order: Order, index: Any, why: str) -> None:
    assert order.faiss is not None
    if index is faiss.IndexIDMap:
        inner = faiss.IndexFlatIP(DIMENSIONS)
        mapped = faiss.IndexIDMap(inner)
        mapped.add_with_ids(VECTORS, np.arange(COUNT))
        faiss.write_index(mapped, str(order.faiss))
    elif index is faiss.IndexScalarQuantizer:
        write(order.faiss, index(DIMENSIONS, faiss.ScalarQuantizer.QT_8bit))
    elif index is faiss.IndexFlat:
        write(order.faiss, index(DIMENSIONS, faiss.METRIC_L1))
    else:
        write(order.faiss, index)
    with pytest.raises(IndexFault, match=why):
        build(order)


def test_a_file_that_faiss_cannot_read_is_refused(order: Order) -> None:
    assert order.faiss is not None
    order.faiss.write_bytes(b"not an index at all")
    with pytest.raises(IndexFault, match="cannot be read as a FAISS index"):
        build(order)
    with pytest.raises(IndexFault, match="there is no such file"):
        build(replace(order, faiss=order.faiss.with_name("away.index")))


def test_an_index_of_other_dimensions_than_the_encoder_is_refused(
    order: Order, encoder: Path
) -> None:
    assert order.faiss is not None
    write(order.faiss, faiss.IndexFlatIP(24), np.ones((COUNT, 24), np.float32))
    with pytest.raises(IndexFault, match=r"vectors of 24 numbers, and encoder .* makes 16"):
        build(replace(order, encoder=encoder))
    assert not order.folder.exists()


@pytest.mark.parametrize("kind", ["flat", "ivf"])
def test_l2_of_vectors_of_other_lengths_does_not_fit_an_encoder(
    order: Order, encoder: Path, kind: str
) -> None:
    """The encoder's queries have length 1, so their ranking would differ without a word."""
    assert order.faiss is not None
    of_encoder = replace(order, encoder=encoder)
    write(order.faiss, made(kind, "l2"), 3 * VECTORS / np.linalg.norm(VECTORS, axis=1)[:, None])
    with pytest.raises(IndexFault, match=r"compares by L2 and has a vector of length 3"):
        build(of_encoder)
    write(order.faiss, made(kind, "l2"), VECTORS / np.linalg.norm(VECTORS, axis=1)[:, None])
    assert build(of_encoder).kind is IndexKind(kind)


def test_the_manifest_states_the_encoder_and_its_prefixes(order: Order, encoder: Path) -> None:
    stated = replace(order, encoder=encoder, query_prefix="query: ", passage_prefix="passage: ")
    dense = build(stated).dense
    assert dense is not None and dense.encoder is not None
    assert dense.encoder.path == encoder.resolve()
    assert (dense.encoder.query_prefix, dense.encoder.passage_prefix) == ("query: ", "passage: ")
    with pytest.raises(IndexFault, match="another corpus, kind or encoder"):
        build(replace(stated, query_prefix="search: "))


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"kind": IndexKind.BM25}, "a bm25 index has no vectors: leave out --faiss"),
        ({"kind": IndexKind.IVF}, "is of kind flat: leave out --kind ivf"),
        ({"vectors": Path("v.npy")}, "one of the three"),
        ({"query_prefix": "query: "}, "--query-prefix is an encoder's"),
        ({"passage_prefix": ""}, "--passage-prefix is an encoder's"),
    ],
)
def test_options_that_do_not_fit_each_other_are_named(
    order: Order, options: dict[str, Any], why: str
) -> None:
    with pytest.raises(IndexFault, match=why):
        build(replace(order, **options))


def test_an_index_on_another_file_system_is_copied(
    order: Order, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert order.faiss is not None

    def link(*_: object) -> None:
        raise OSError(errno.EXDEV, "Invalid cross-device link")

    monkeypatch.setattr(os, "link", link)
    monkeypatch.setattr(adopt, "PIECE", 1000)
    copied: list[int] = []
    build(order, lambda step, done, total: copied.append(done) if step == "copying" else None)
    held = order.folder / DENSE_FILE
    assert not held.samefile(order.faiss)
    assert held.read_bytes() == order.faiss.read_bytes()
    assert copied[-1] == order.faiss.stat().st_size and len(copied) > 2
    SearchIndex(Sources(folder=order.folder)).close()


def test_an_index_that_changed_after_it_was_adopted_is_refused(order: Order) -> None:
    assert order.faiss is not None
    build(order)
    assert (order.folder / DENSE_FILE).samefile(order.faiss)
    write(order.faiss, faiss.IndexFlatIP(DIMENSIONS), VECTORS[::-1].copy())
    with pytest.raises(IndexFault, match="was changed after it was adopted"):
        SearchIndex(Sources(folder=order.folder))
    with pytest.raises(IndexFault, match="another corpus, kind or encoder"):
        build(order)


def test_the_command_says_that_the_file_was_linked(order: Order) -> None:
    words = ["--faiss", str(order.faiss), "--corpus", str(order.corpus)]
    folder = ["--folder", str(order.folder)]
    for _ in range(2):
        done = CliRunner().invoke(app, ["index", "build", *words, *folder])
        assert done.exit_code == 0, done.stderr
        assert f"{order.folder} holds {COUNT} passages, flat" in done.stdout
        assert f"{order.faiss} was linked" in done.stdout
    for corpora in ([str(order.corpus), *words], ["--faiss", str(order.faiss)]):
        done = CliRunner().invoke(app, ["index", "build", *corpora, *folder])
        assert done.exit_code == 2
        assert "give the corpus once" in done.stderr
