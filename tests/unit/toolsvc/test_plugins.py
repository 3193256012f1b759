"""Plain functions in threads, of which there are not enough."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from structlog.testing import capture_logs

import toolsvc.plugin.executors
from tests.support.hosts import calling, opening, refused, said
from toolsvc.errors import Reason
from toolsvc.host.host import Host
from toolsvc.plugin.tool import Tool
from toolsvc.types import Call, CallRequest, Running
from toolwright.tracing.ids import trace_id, trajectory_of
from toolwright.types import ToolErrorKind


class Threaded(Tool):
    name = "threaded"
    parallel_calls = True

    def __init__(self) -> None:
        self.calls = 0
        self.may_end = threading.Event()
        self.ends: dict[str, threading.Event] = {}
        """Of calls by their text, where they do not end together."""

    def call(self, state: None, call: Call) -> str:
        self.calls += 1
        assert self.ends.get(call.arguments["text"], self.may_end).wait(20)
        return call.arguments["text"]


def request(name: str, **more: float) -> CallRequest:
    return calling(name, tool="threaded", arguments={"text": name}, **more)


async def test_a_call_that_found_no_free_thread_ran_nothing_and_may_be_repeated(
    monkeypatch: pytest.MonkeyPatch, until: Callable[[Callable[[], bool]], Awaitable[None]]
) -> None:
    tool = Threaded()
    with ThreadPoolExecutor(max_workers=1) as threads:
        monkeypatch.setattr(toolsvc.plugin.executors, "_THREADS", threads)
        async with Host([tool]) as host:
            await host.open(opening())
            first = asyncio.create_task(host.call(request("first")))
            await until(lambda: tool.calls == 1)
            with refused(Reason.QUEUE_LIMIT) as failure:
                await host.call(request("second", run_limit=0.05))
            assert failure.value.retry_after is not None
            assert "--workers" in failure.value.fix
            tool.may_end.set()
            assert said(await first) == "first"
            assert tool.calls == 1
            assert said(await host.call(request("second"))) == "second"
            assert tool.calls == 2


async def test_the_line_for_a_thread_is_no_part_of_the_run(
    monkeypatch: pytest.MonkeyPatch, until: Callable[[Callable[[], bool]], Awaitable[None]]
) -> None:
    tool = Threaded()
    tool.ends = {"first": threading.Event(), "second": threading.Event()}
    with ThreadPoolExecutor(max_workers=1) as threads:
        monkeypatch.setattr(toolsvc.plugin.executors, "_THREADS", threads)
        async with Host([tool]) as host:
            await host.open(opening())
            first = asyncio.create_task(host.call(request("first")))
            await until(lambda: tool.calls == 1)
            waits = await host.call(request("second", run_limit=0.3, wait=0.1))
            assert isinstance(waits, Running)
            tool.ends["first"].set()
            late = await host.call(request("second", run_limit=0.3))
            tool.ends["second"].set()
            await first
    assert late.result.error.kind is ToolErrorKind.TIMEOUT
    assert late.queued > 0.09
    assert late.run > 0.29


class Faulty(Tool):
    name = "threaded"
    parallel_calls = True

    def call(self, state: None, call: Call) -> str:
        raise KeyError(call.arguments["text"])


async def test_the_log_tells_an_author_the_line_once() -> None:
    async with Host([Faulty()]) as host:
        await host.open(opening())
        with capture_logs() as logged:
            for name in ("first", "second"):
                assert said(await host.call(request(name))) == f"KeyError: {name!r}"
    (line,) = [one for one in logged if one["event"] == "tool raised"]
    assert (line["tool"], line["log_level"]) == ("threaded", "warning")
    first = request("first")
    owner = opening().owner
    assert line["call"] == first.call_id
    assert line["trace"] == trace_id(owner, trajectory_of(first.call_id))
    assert 'raise KeyError(call.arguments["text"])' in line["exception"]
    assert line["exception"].endswith("KeyError: 'first'\n")
