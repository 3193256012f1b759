"""An index folder: built in steps, checked when it is opened, asked for passages."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from toolsvc.backends.search.build import Order, build
from toolsvc.backends.search.errors import IndexFault, NoVector, WrongVector
from toolsvc.backends.search.index import Retriever, SearchIndex, Sources
from toolsvc.backends.search.manifest import MANIFEST, PLAN, Dense, IndexKind
from toolsvc.backends.search.types import Query

TEXTS = [
    '"Cats"\nCats purr and sleep in the sun.',
    '"Dogs"\nDogs bark at cats and at postmen.',
    '"Sun"\nThe sun is a star.',
    '"Postmen"\nPostmen bring letters, dogs run after postmen.',
]
VECTORS = np.array([[1, 0, 0], [4, 3, 0], [0, 0, 5], [0, 2, 0]], np.float32)


@pytest.fixture
def order(tmp_path: Path) -> Order:
    """Of a hybrid index over four passages."""
    corpus = tmp_path / "corpus.jsonl"
    corpus.write_text(
        "".join(json.dumps({"id": f"p{i}", "contents": t}) + "\n" for i, t in enumerate(TEXTS)),
        encoding="utf-8",
    )
    np.save(tmp_path / "vectors.npy", VECTORS)
    return Order(
        corpus=corpus,
        folder=tmp_path / "index",
        kind=IndexKind.HYBRID,
        dense=Dense.FLAT,
        vectors=tmp_path / "vectors.npy",
    )


def ids(index: SearchIndex, k: int, *queries: Query) -> list[list[str]]:
    return [[hit.passage.id for hit in hits] for hits in index.search(queries, k).hits]


def vector(*numbers: float) -> np.ndarray:
    return np.array(numbers, np.float32)


def test_one_index_answers_by_words_by_vectors_and_by_both(order: Order) -> None:
    build(order)
    query = Query(text="dogs bark", vector=vector(0, 9, 0))
    for retriever, expected in {
        Retriever.BM25: ["p1", "p3"],
        Retriever.DENSE: ["p3", "p1"],
        None: ["p1", "p3"],
    }.items():
        index = SearchIndex(Sources(folder=order.folder, retriever=retriever))
        assert ids(index, 2, query) == [expected]
        index.close()


def test_a_query_that_cannot_be_answered_is_known_beforehand(order: Order) -> None:
    build(order)
    index = SearchIndex(Sources(folder=order.folder))
    with pytest.raises(NoVector):
        index.check(Query(text="cats"))
    with pytest.raises(WrongVector, match=r"2 numbers.* 3"):
        index.check(Query(text="cats", vector=vector(1, 2)))
    with pytest.raises(WrongVector, match="finite"):
        index.check(Query(text="cats", vector=vector(1, 2, np.nan)))
    SearchIndex(Sources(folder=order.folder, retriever=Retriever.BM25)).check(Query(text="cats"))


def test_a_finished_index_is_not_built_again(order: Order) -> None:
    manifest = build(order)
    before = {path: path.stat().st_mtime_ns for path in order.folder.rglob("*")}
    assert build(order) == manifest
    assert {path: path.stat().st_mtime_ns for path in order.folder.rglob("*")} == before


def test_a_build_goes_on_with_the_steps_that_are_missing(order: Order) -> None:
    build(order)
    (order.folder / MANIFEST).rename(order.folder / PLAN)
    (order.folder / "dense.faiss").unlink()
    before = (order.folder / "bm25").stat().st_mtime_ns
    steps: set[str] = set()
    build(order, lambda step, done, total: steps.add(step))
    assert steps == {"reading the corpus", "indexing (flat)"}
    assert (order.folder / "bm25").stat().st_mtime_ns == before
    SearchIndex(Sources(folder=order.folder)).close()


@pytest.mark.parametrize("finished", [True, False])
def test_another_index_is_never_written_over_one(order: Order, finished: bool) -> None:
    build(order)
    if not finished:
        (order.folder / MANIFEST).rename(order.folder / PLAN)
    with pytest.raises(IndexFault, match="another corpus, kind or encoder"):
        build(replace(order, kind=IndexKind.BM25, vectors=None))


@pytest.mark.parametrize("wrong", [VECTORS[:3], VECTORS.astype(np.float64), VECTORS[0]])
def test_vectors_that_do_not_fit_the_corpus_are_refused(order: Order, wrong: np.ndarray) -> None:
    assert order.vectors is not None
    np.save(order.vectors, wrong)
    with pytest.raises(IndexFault, match=r"must be float32 \[4, dimensions\]"):
        build(order)


def test_what_is_no_finished_index_is_refused(order: Order) -> None:
    with pytest.raises(IndexFault, match="toolsvc index build"):
        SearchIndex(Sources(folder=order.folder))
    build(order)
    manifest = order.folder / MANIFEST
    manifest.write_text(
        manifest.read_text(encoding="utf-8").replace('"format": 1', '"format": 2'), encoding="utf-8"
    )
    with pytest.raises(IndexFault, match="format 1"):
        SearchIndex(Sources(folder=order.folder))


def test_another_corpus_is_refused_and_a_moved_one_can_be_named(order: Order) -> None:
    build(order)
    moved = order.corpus.rename(order.corpus.with_name("moved.jsonl"))
    with pytest.raises(IndexFault, match="--set search"):
        SearchIndex(Sources(folder=order.folder))
    assert len(SearchIndex(Sources(folder=order.folder, corpus=moved))) == 4
    moved.write_text(moved.read_text(encoding="utf-8").replace("purr", "sing"), encoding="utf-8")
    with pytest.raises(IndexFault, match="is not what index"):
        SearchIndex(Sources(folder=order.folder, corpus=moved))


@pytest.mark.parametrize("part", ["offsets.npy", "dense.faiss", "bm25"])
def test_a_part_that_is_missing_is_named(order: Order, part: str) -> None:
    build(order)
    (order.folder / part).rename(order.folder / "away")
    with pytest.raises(IndexFault, match=f"{part} is missing"):
        SearchIndex(Sources(folder=order.folder))


def test_a_part_of_another_index_is_refused(order: Order, tmp_path: Path) -> None:
    build(order)
    short = tmp_path / "short.jsonl"
    short.write_text(order.corpus.read_text(encoding="utf-8").splitlines()[0], encoding="utf-8")
    other = Order(corpus=short, folder=tmp_path / "other", kind=IndexKind.BM25)
    build(other)
    (order.folder / "bm25").rename(tmp_path / "away")
    (other.folder / "bm25").rename(order.folder / "bm25")
    with pytest.raises(IndexFault, match="is of 1 passages, the corpus has 4"):
        SearchIndex(Sources(folder=order.folder))
