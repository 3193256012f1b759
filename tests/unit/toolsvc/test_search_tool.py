"""From an action to an observation, and what is refused so that the policy never reads it."""

import asyncio
import json
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.support.trajectory import Trajectory, said
from toolsvc.backends.search.build import Order, build
from toolsvc.backends.search.index import Found, SearchIndex
from toolsvc.backends.search.manifest import IndexKind
from toolsvc.backends.search.types import Query
from toolsvc.errors import Reason, Refused, StartError
from toolsvc.host.host import Host
from toolsvc.plugin.registry import make_registered
from toolsvc.plugin.tool import Cancellation
from toolsvc.sandbox.config import SandboxConfig
from toolsvc.tools.search import NOTHING_FOUND, SearchOptions, SearchTool
from toolsvc.types import Call, Result, SessionInfo
from toolwright.types import ToolErrorKind

COLOURS = ("green", "red", "yellow", "brown", "golden")
TEXTS = [f'"Apple {number}"\nApples may be {colour}.' for number, colour in enumerate(COLOURS)]
SESSION = SessionInfo(session_id="s", owner="o", metadata={})


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    where = tmp_path_factory.mktemp("search")
    corpus = where / "corpus.jsonl"
    corpus.write_text(
        "".join(json.dumps({"id": i, "contents": t}) + "\n" for i, t in enumerate(TEXTS)),
        encoding="utf-8",
    )
    build(Order(corpus=corpus, folder=where / "index", kind=IndexKind.BM25))
    return where / "index"


@pytest.fixture
def tool(folder: Path) -> SearchTool:
    return SearchTool(SearchOptions(index=folder, topk=2, queue=2))


def call(text: str, *, run_limit: float = 10.0, **metadata: Any) -> Call:
    return Call(
        session=SESSION,
        call_id="c",
        action="",
        arguments={"query": text},
        turn=0,
        turns_left=0,
        last_step=False,
        run_limit=run_limit,
        metadata=metadata,
    )


class Held:
    """Keeps the index from answering until it is let go."""

    def __init__(self, tool: SearchTool, monkeypatch: pytest.MonkeyPatch) -> None:
        self.go = threading.Event()
        self.begun = threading.Event()
        real = SearchIndex.search

        def search(index: SearchIndex, queries: Sequence[Query], k: int) -> Found:
            self.begun.set()
            assert self.go.wait(10)
            return real(index, queries, k)

        monkeypatch.setattr(SearchIndex, "search", search)
        self.tool = tool

    async def one_runs(self) -> "asyncio.Task[Result]":
        task = asyncio.create_task(self.tool.run(None, call("apples"), Cancellation()))
        assert await asyncio.to_thread(self.begun.wait, 10)
        return task


async def test_an_observation_has_a_line_for_each_passage(tool: SearchTool) -> None:
    await tool.start()
    result = await tool.run(None, call(" brown apples "), Cancellation())
    other = await tool.run(None, call("pears"), Cancellation())
    await tool.stop()
    first, second = said(result).splitlines()
    assert first == "Doc 1(Title: Apple 3) Apples may be brown."
    assert second.startswith("Doc 2(Title: Apple 0) ")
    assert result.metrics["hits"] == 2
    assert (said(other), other.valid, other.error) == (NOTHING_FOUND, True, None)


async def test_the_best_passages_stay_of_an_observation_that_is_too_long(tool: SearchTool) -> None:
    async with Host([tool], observation_limit=64) as host:
        found = await Trajectory(host, "search").act("<search>brown apples</search>")
    assert found.truncated
    assert said(found).startswith("Doc 1(Title: Apple 3) Apples ")
    assert "Apple 0" not in said(found)


async def test_an_empty_query_is_an_invalid_action(tool: SearchTool) -> None:
    await tool.start()
    result = await tool.run(None, call(" \n"), Cancellation())
    await tool.stop()
    assert not result.valid
    assert result.error.kind is ToolErrorKind.INVALID_ACTION


async def test_a_full_queue_is_refused_with_a_time_to_come_back(
    tool: SearchTool, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = Held(tool, monkeypatch)
    await tool.start()
    running = await held.one_runs()
    waiting = [
        asyncio.create_task(tool.run(None, call("apples"), Cancellation())) for _ in range(2)
    ]
    await asyncio.sleep(0)
    with pytest.raises(Refused) as refusal:
        await tool.run(None, call("apples"), Cancellation())
    assert (refusal.value.reason, refusal.value.retry_after) == (Reason.QUEUE_LIMIT, 1.0)
    assert tool.figures() == {"waiting": 2, "batches_total": 1, "queries_total": 1}
    held.go.set()
    assert all(result.error is None for result in await asyncio.gather(running, *waiting))
    assert tool.figures() == {"waiting": 0, "batches_total": 2, "queries_total": 3}
    await tool.stop()


async def test_an_idle_service_waits_for_its_window(folder: Path) -> None:
    tool = SearchTool(SearchOptions(index=folder, batch=2, window_ms=1000))
    await tool.start()
    first = asyncio.create_task(tool.run(None, call("apples"), Cancellation()))
    for _ in range(9):
        await asyncio.sleep(0)
    assert tool.figures()["waiting"] == 1
    second = await tool.run(None, call("apples"), Cancellation())
    assert [result.metrics["batch"] for result in (await first, second)] == [2, 2]
    await tool.stop()


async def test_a_run_limit_is_told_to_the_policy_only_if_the_search_had_begun(
    tool: SearchTool, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = Held(tool, monkeypatch)
    await tool.start()
    begun = asyncio.create_task(tool.run(None, call("apples", run_limit=0.2), Cancellation()))
    assert await asyncio.to_thread(held.begun.wait, 10)
    with pytest.raises(Refused) as refusal:
        await tool.run(None, call("apples", run_limit=0.01), Cancellation())
    assert refusal.value.reason is Reason.QUEUE_LIMIT
    result = await begun
    assert result.error.kind is ToolErrorKind.TIMEOUT
    held.go.set()
    await tool.stop()


async def test_time_in_line_is_no_part_of_the_run_limit(
    tool: SearchTool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A search that began within its limit has all of it from then on."""
    real, gates, begun = SearchIndex.search, [threading.Event() for _ in range(2)], []

    def search(index: SearchIndex, queries: Sequence[Query], k: int) -> Found:
        begun.append(len(begun))
        assert gates[begun[-1]].wait(10)
        return real(index, queries, k)

    monkeypatch.setattr(SearchIndex, "search", search)
    await tool.start()
    first = asyncio.create_task(tool.run(None, call("apples"), Cancellation()))
    while not begun:  # noqa: ASYNC110 - until it is in the searcher's thread
        await asyncio.sleep(0.01)
    asked = asyncio.create_task(tool.run(None, call("apples", run_limit=2.0), Cancellation()))
    for gate in gates:
        await asyncio.sleep(1.2)  # of it in line, then of its own
        gate.set()
    assert (await asked).error is None
    assert (await first).error is None
    await tool.stop()


async def test_a_cancelled_call_says_so(tool: SearchTool, monkeypatch: pytest.MonkeyPatch) -> None:
    held = Held(tool, monkeypatch)
    await tool.start()
    running = await held.one_runs()
    cancellation = Cancellation()
    waiting = asyncio.create_task(tool.run(None, call("apples"), cancellation))
    await asyncio.sleep(0)
    cancellation.request()
    result = await waiting
    assert result.error.kind is ToolErrorKind.CANCELLED
    held.go.set()
    await running
    await tool.stop()


async def test_a_search_that_fails_is_no_observation(
    tool: SearchTool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def search(*_: object) -> Found:
        raise OSError("the disk is gone")

    monkeypatch.setattr(SearchIndex, "search", search)
    await tool.start()
    with pytest.raises(Refused, match="the disk is gone") as refusal:
        await tool.run(None, call("apples"), Cancellation())
    await tool.stop()
    assert refusal.value.reason is Reason.BACKEND_DOWN


def test_options_that_are_wrong_are_named(folder: Path) -> None:
    with pytest.raises(StartError, match=r"set search.index to a folder of"):
        make_registered("search", {}, SandboxConfig())
    with pytest.raises(StartError, match=r"search.topk"):
        make_registered("search", {"index": str(folder), "topk": 0}, SandboxConfig())
