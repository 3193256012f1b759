"""A retriever behind Search-R1's API: batches, retries, and failures that no policy reads."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from pydantic import ValidationError

from tests.support.hosts import call_of
from toolsvc.backends.search import remote
from toolsvc.backends.search.build import Order, build
from toolsvc.backends.search.http import RetrieveServer
from toolsvc.backends.search.index import Sources
from toolsvc.backends.search.manifest import IndexKind
from toolsvc.backends.search.searcher import Searcher
from toolsvc.errors import Reason, Refused, StartError
from toolsvc.plugin.tool import Cancellation
from toolsvc.tools.search import SearchOptions, SearchTool
from toolwright.process.backoff import Backoff

pytestmark = pytest.mark.quick

WORDS = [f"word{number}" for number in range(256)]


async def ask(tool: SearchTool, query: str, **fields: Any) -> str:
    result = await tool.run(
        None, call_of(**{"query": query, "run_limit": 30.0, **fields}), Cancellation()
    )
    (text,) = result.observation
    return text.text  # type: ignore[union-attr]


@asynccontextmanager
async def running(url: str, **options: Any) -> AsyncIterator[SearchTool]:
    tool = SearchTool(SearchOptions(endpoint=url, **options))
    await tool.start()
    try:
        yield tool
    finally:
        await tool.stop()


class Server:
    """Answers as its script says; `requests` has the queries of each request."""

    def __init__(self) -> None:
        self.requests: list[list[str]] = []
        self.script: list[Callable[[list[str]], Any]] = []
        self.url = ""

    async def answer(self, request: web.Request) -> web.Response:
        queries = (await request.json())["queries"]
        self.requests.append(queries)
        said = self.script.pop(0)(queries) if self.script else documents(queries)
        if asyncio.iscoroutine(said):
            said = await said
        return said if isinstance(said, web.Response) else web.json_response(said)


def documents(queries: list[str]) -> dict[str, Any]:
    return {
        "result": [
            [{"document": {"id": 1, "contents": f'"{query}"\nabout {query}'}, "score": 1.0}]
            for query in queries
        ]
    }


def one(item: Any) -> dict[str, Any]:
    return {"result": [[item]]}


@pytest.fixture
async def server(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Server]:
    monkeypatch.setattr(remote, "BACKOFF", Backoff(0.001, 0.01))
    made = Server()
    app = web.Application()
    app.router.add_post("/retrieve", made.answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    (address,) = runner.addresses
    made.url = f"http://127.0.0.1:{address[1]}/retrieve"
    yield made
    await runner.cleanup()


async def test_256_calls_at_once_read_what_our_own_server_finds(tmp_path: Path) -> None:
    corpus = tmp_path / "corpus.jsonl"
    corpus.write_text(
        "".join(
            json.dumps({"id": word, "contents": f'"{word}"\nA text about {word}.'}) + "\n"
            for word in WORDS
        ),
        encoding="utf-8",
    )
    build(Order(corpus=corpus, folder=tmp_path / "index", kind=IndexKind.BM25))
    local = SearchTool(SearchOptions(index=tmp_path / "index", topk=1))
    await local.start()
    async with (
        Searcher(Sources(folder=tmp_path / "index")) as searcher,
        RetrieveServer(searcher, "127.0.0.1:0", topk=3, insecure=False) as retriever,
        running(f"http://127.0.0.1:{retriever.port}/retrieve", topk=1, batch=32) as tool,
    ):
        found = await asyncio.gather(*(ask(tool, word) for word in WORDS))
        assert found == [await ask(local, word) for word in WORDS]
        assert tool.figures()["queries_total"] == len(WORDS)
        assert tool.figures()["batches_total"] < len(WORDS)
    await local.stop()


async def test_a_request_that_fails_is_sent_again(server: Server) -> None:
    async with running(server.url) as tool:
        server.script = [
            lambda _: web.Response(status=503, text="busy"),
            lambda _: web.Response(status=429),
            documents,
        ]
        assert await ask(tool, "apples") == "Doc 1(Title: apples) about apples"
        assert server.requests[1:] == [["apples"]] * 3
        assert tool.figures()["retries_total"] == 2


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (lambda _: web.Response(status=500, text="down"), "did not answer in 0.1 s"),
        (lambda _: web.Response(status=404, text="not here"), "answered 404: not here"),
        (lambda _: {"result": []}, "answered 0 of 1 queries"),
        (lambda _: {"hits": []}, "is no retriever of Search-R1"),
        (lambda _: web.Response(text="<html>"), "is no retriever of Search-R1"),
        (lambda _: one({"document": "text", "score": 1}), "is no retriever of Search-R1"),
        (lambda _: one({"document": {"id": 1}, "score": 1}), "is no retriever of Search-R1"),
        (lambda _: one({"docid": 1, "snippet": "x"}), "is no retriever of Search-R1"),
        (lambda _: asyncio.sleep(9), "did not answer in 0.1 s"),
    ],
)
async def test_no_failure_becomes_an_observation(
    server: Server, answer: Callable[[list[str]], Any], says: str
) -> None:
    async with running(server.url, timeout_s=0.1) as tool:
        server.script = [answer] * 1000
        with pytest.raises(Refused, match=says) as refused:
            await ask(tool, "apples")
        assert refused.value.reason is Reason.BACKEND_DOWN
        server.script = []
        assert await ask(tool, "pears") == "Doc 1(Title: pears) about pears"


@pytest.mark.parametrize("status", [400, 500])
async def test_one_bad_query_fails_its_own_call_only(server: Server, status: int) -> None:
    def answer(queries: list[str]) -> Any:
        return web.Response(status=status) if "bad" in queries else documents(queries)

    async with running(server.url, requests=1, timeout_s=0.2) as tool:
        server.script = [answer] * 1000
        words = ["first", "a", "b", "bad", "c", "d", "e", "f"]
        found = await asyncio.gather(*(ask(tool, w) for w in words), return_exceptions=True)
    assert [isinstance(one, Refused) for one in found] == [word == "bad" for word in words]


async def test_a_slow_server_at_the_run_limit_is_no_observation(server: Server) -> None:
    async with running(server.url) as tool:
        server.script = [lambda _: asyncio.sleep(5)]
        with pytest.raises(Refused, match="no answer in") as refused:
            await ask(tool, "apples", run_limit=0.1)
        assert refused.value.reason is Reason.BACKEND_DOWN


async def test_a_body_without_end_is_cut(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    async with running(server.url) as tool:
        monkeypatch.setattr(remote, "MOST_BYTES", 100)
        server.script = [lambda _: web.Response(text="x" * 1000)]
        with pytest.raises(Refused, match="more than 100 bytes"):
            await ask(tool, "apples")


async def test_documents_without_scores_and_with_titles_of_their_own_are_read(
    server: Server,
) -> None:
    async with running(server.url) as tool:
        server.script = [
            lambda _: {"result": [[{"id": "a", "title": "Apple", "text": "A fruit."}]]}
        ]
        assert await ask(tool, "apples") == "Doc 1(Title: Apple) A fruit."


async def test_a_server_that_is_not_there_keeps_the_service_from_starting() -> None:
    tool = SearchTool(SearchOptions(endpoint="http://127.0.0.1:9/retrieve", timeout_s=0.1))
    with pytest.raises(StartError, match="start the retriever"):
        await tool.start()


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"index": "a", "endpoint": "http://h:1/retrieve"},
        {"endpoint": "h:1/retrieve"},
        {"endpoint": "http://h:1/retrieve", "kind": "bm25"},
    ],
)
def test_options_that_do_not_fit_together(options: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        SearchOptions.model_validate(options)
