"""How BM25 splits text into words, and what becomes of an index that split it otherwise."""

import json
import time
import unicodedata
from pathlib import Path

import pytest

from toolsvc.backends.search import build as building
from toolsvc.backends.search.build import Order, build
from toolsvc.backends.search.errors import IndexFault
from toolsvc.backends.search.index import BM25_FOLDER, DENSE_FILE, SearchIndex, Sources
from toolsvc.backends.search.manifest import MANIFEST, PLAN, IndexKind
from toolsvc.backends.search.ranking.words import split
from toolsvc.backends.search.types import Query

pytestmark = pytest.mark.quick

PASSAGES = [
    "北京大学\n北京大学创建于1898年,位于北京市海淀区。",
    "清华大学\n清华大学的校训是自强不息,厚德载物。",
    "Vitamin C\nVitamin C prevents scurvy.",
    "Vitamin D\nVitamin D helps bones.",
    "Vitamin K\nVitamin K clots blood.",
    "Vitamin A\nVitamin A is good for the eyes of a cat's owner.",
    unicodedata.normalize("NFD", "Beyoncé\nShe is a singer."),
    "C\nC is a language by Dennis Ritchie.",
    "Tokyo\n東京は日本の首都である。",
    "猫\n猫が好きです。",
    "हिन्दी\nहिन्दी भारत की भाषा है।",
    "ดนตรี\nดนตรีไทยเดิม",
    "서울\n서울은 대한민국의 수도이다.",
    "\uff26\uff29\uff26\uff21\nFootball.",
]


@pytest.fixture
def order(tmp_path: Path) -> Order:
    corpus = tmp_path / "corpus.jsonl"
    lines = [
        json.dumps({"id": str(number), "contents": text}, ensure_ascii=False)
        for number, text in enumerate(PASSAGES)
    ]
    corpus.write_text("\n".join(lines), encoding="utf-8")
    return Order(corpus=corpus, folder=tmp_path / "index", kind=IndexKind.BM25)


def best(order: Order, query: str) -> list[str]:
    index = SearchIndex(Sources(folder=order.folder))
    (hits,) = index.search([Query(text=query)], 3).hits
    index.close()
    return [hit.passage.id for hit in hits]


def test_words_of_one_letter_and_of_every_script_find_their_passage(order: Order) -> None:
    build(order)
    for query, wanted in {
        "vitamin K": 4,
        "C": 7,
        "vitamin A": 5,
        "清华大学的校训是什么": 1,
        "日本の首都": 8,
        "猫": 9,
        unicodedata.normalize("NFC", "Beyoncé"): 6,
        "हिन्दी": 10,
        "เพลงไทย": 11,
        "대한민국 수도": 12,
        "fifa": 13,
        "cats": 5,
    }.items():
        assert best(order, query)[:1] == [str(wanted)], query


@pytest.mark.parametrize("text", ["猫" * 200_000, "a's" * 100_000, "A " * 200_000, "क्" * 100_000])
def test_splitting_is_linear(text: str) -> None:
    began = time.process_time()
    split(text)
    assert time.process_time() - began < 2


def age(path: Path) -> None:
    """Makes the manifest what the version before wrote."""
    manifest = json.loads(path.read_text(encoding="utf-8"))
    del manifest["bm25"]["words"]
    path.write_text(json.dumps(manifest), encoding="utf-8")


def test_an_older_index_is_refused_by_name_and_built_again(order: Order) -> None:
    build(order)
    age(order.folder / MANIFEST)
    with pytest.raises(IndexFault, match=f"index {order.folder} was built with version 1 of"):
        SearchIndex(Sources(folder=order.folder))
    (order.folder / BM25_FOLDER / "old").touch()
    build(order)
    assert not (order.folder / BM25_FOLDER / "old").exists()
    assert best(order, "vitamin K")[:1] == ["4"]


@pytest.mark.parametrize("name", [MANIFEST, PLAN])
def test_a_build_killed_while_it_makes_words_again_starts_over(
    order: Order, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    build(order)
    (order.folder / MANIFEST).rename(order.folder / name)
    age(order.folder / name)
    (order.folder / BM25_FOLDER / "old").touch()

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(building, "write_whole", killed)
        with pytest.raises(KeyboardInterrupt):
            build(order)
    build(order)
    assert not (order.folder / BM25_FOLDER / "old").exists()


def test_vectors_of_an_older_index_are_kept(order: Order, tmp_path: Path) -> None:
    import numpy as np

    np.save(tmp_path / "v.npy", np.eye(len(PASSAGES), dtype=np.float32))
    hybrid = Order(
        corpus=order.corpus,
        folder=order.folder,
        kind=IndexKind.HYBRID,
        dense=building.Dense.FLAT,
        vectors=tmp_path / "v.npy",
    )
    build(hybrid)
    age(order.folder / MANIFEST)
    made = (order.folder / DENSE_FILE).stat().st_mtime_ns
    build(hybrid)
    assert (order.folder / DENSE_FILE).stat().st_mtime_ns == made
