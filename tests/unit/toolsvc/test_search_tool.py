"""From an action to an observation, and what is refused so that the policy never reads it."""

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Sequence
from itertools import count
from pathlib import Path

import pytest

from tests.support.hosts import call_of
from tests.support.trajectory import Trajectory, said
from toolsvc.backends.search.build import Order, build
from toolsvc.backends.search.index import Found, SearchIndex
from toolsvc.backends.search.manifest import IndexKind
from toolsvc.backends.search.types import Query
from toolsvc.errors import Reason, Refused
from toolsvc.host.host import Host
from toolsvc.plugin.tool import Cancellation
from toolsvc.tools.search import NOTHING_FOUND, SearchOptions, SearchTool
from toolsvc.types import Result
from toolwright.types import ToolErrorKind

COLOURS = ("green", "red", "yellow", "brown", "golden")
TEXTS = [f'"Apple {number}"\nApples may be {colour}.' for number, colour in enumerate(COLOURS)]


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
async def tool(folder: Path) -> AsyncIterator[SearchTool]:
    made = SearchTool(SearchOptions(index=folder, topk=2, queue=2))
    await made.start()
    yield made
    await made.stop()


def asking(tool: SearchTool, text: str = "apples", run_limit: float = 10.0) -> asyncio.Task[Result]:
    given = call_of(query=text, run_limit=run_limit)
    return asyncio.create_task(tool.run(None, given, Cancellation()))


class Held:
    """Keeps the n-th search from answering until its gate is opened."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.gates = [threading.Event() for _ in range(3)]
        self.begun = threading.Semaphore(0)
        real, number = SearchIndex.search, count()

        def search(index: SearchIndex, queries: Sequence[Query], k: int) -> Found:
            gate = self.gates[next(number)]
            self.begun.release()
            assert gate.wait(10)
            return real(index, queries, k)

        monkeypatch.setattr(SearchIndex, "search", search)

    async def one_runs(self, tool: SearchTool, **limits: float) -> asyncio.Task[Result]:
        task = asking(tool, **limits)
        assert await asyncio.to_thread(self.begun.acquire, timeout=10)
        return task

    def open(self) -> None:
        for gate in self.gates:
            gate.set()


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Held:
    return Held(monkeypatch)


async def test_an_observation_has_a_line_for_each_passage(tool: SearchTool) -> None:
    result, other = await asking(tool, " brown apples "), await asking(tool, "pears")
    first, second = said(result).splitlines()
    assert first == "Doc 1(Title: Apple 3) Apples may be brown."
    assert second.startswith("Doc 2(Title: Apple 0) ")
    assert result.metrics["hits"] == 2
    assert (said(other), other.valid, other.error) == (NOTHING_FOUND, True, None)
    empty = await asking(tool, " \n")
    assert (empty.valid, empty.error.kind) == (False, ToolErrorKind.INVALID_ACTION)


async def test_the_best_passages_stay_of_an_observation_that_is_too_long(folder: Path) -> None:
    tool = SearchTool(SearchOptions(index=folder, topk=2))
    async with Host([tool], observation_limit=64) as host:
        found = await Trajectory(host, "search").act("<search>brown apples</search>")
    assert found.truncated
    assert said(found).startswith("Doc 1(Title: Apple 3) Apples ")
    assert "Apple 0" not in said(found)


async def test_a_full_queue_is_refused_with_a_time_to_come_back(
    held: Held, tool: SearchTool
) -> None:
    running = await held.one_runs(tool)
    waiting = [asking(tool) for _ in range(2)]
    await asyncio.sleep(0)
    with pytest.raises(Refused) as refusal:
        await asking(tool)
    assert (refusal.value.reason, refusal.value.retry_after) == (Reason.QUEUE_LIMIT, 1.0)
    assert tool.figures() == {"waiting": 2, "batches_total": 1, "queries_total": 1}
    held.open()
    assert all(result.error is None for result in await asyncio.gather(running, *waiting))
    assert tool.figures() == {"waiting": 0, "batches_total": 2, "queries_total": 3}


async def test_an_idle_service_waits_for_its_window(folder: Path) -> None:
    tool = SearchTool(SearchOptions(index=folder, batch=2, window_ms=1000))
    await tool.start()
    first = asking(tool)
    for _ in range(9):
        await asyncio.sleep(0)
    assert tool.figures()["waiting"] == 1
    second = await asking(tool)
    assert [result.metrics["batch"] for result in (await first, second)] == [2, 2]
    await tool.stop()


async def test_a_run_limit_is_told_to_the_policy_only_if_the_search_had_begun(
    held: Held, tool: SearchTool
) -> None:
    begun = await held.one_runs(tool, run_limit=0.2)
    with pytest.raises(Refused) as refusal:
        await asking(tool, run_limit=0.01)
    assert refusal.value.reason is Reason.QUEUE_LIMIT
    assert (await begun).error.kind is ToolErrorKind.TIMEOUT
    held.open()


async def test_time_in_line_is_no_part_of_the_run_limit(held: Held, tool: SearchTool) -> None:
    """A search that began within its limit has all of it from then on."""
    first = await held.one_runs(tool)
    asked = asking(tool, run_limit=2.0)
    for gate in held.gates[:2]:
        await asyncio.sleep(1.2)  # of it in line, then of its own
        gate.set()
    assert (await asked).error is None
    assert (await first).error is None


async def test_a_cancelled_call_says_so(held: Held, tool: SearchTool) -> None:
    running = await held.one_runs(tool)
    cancellation = Cancellation()
    waiting = asyncio.create_task(tool.run(None, call_of(query="apples"), cancellation))
    await asyncio.sleep(0)
    cancellation.request()
    assert (await waiting).error.kind is ToolErrorKind.CANCELLED
    held.open()
    await running


async def test_a_search_that_fails_is_no_observation(
    tool: SearchTool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def search(*_: object) -> Found:
        raise OSError("the disk is gone")

    monkeypatch.setattr(SearchIndex, "search", search)
    with pytest.raises(Refused, match="the disk is gone") as refusal:
        await asking(tool)
    assert refusal.value.reason is Reason.BACKEND_DOWN
