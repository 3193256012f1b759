"""The end of a host: every tool is stopped, whatever the others do."""

from __future__ import annotations

import asyncio
import contextlib

import pytest
from structlog.testing import capture_logs

import toolsvc.host.host
import toolsvc.host.sessions
from tests.support.hosts import Counter, calling, hosting, opening
from toolsvc.errors import StartError
from toolsvc.host.host import Host
from toolsvc.host.open_session import OpenSession
from toolsvc.types import Call


class Stopped(Counter):
    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name
        self.stopped = 0

    async def stop(self) -> None:
        self.stopped += 1


class FailsToStop(Stopped):
    async def stop(self) -> None:
        await super().stop()
        raise OSError("still busy")


class NeverStops(Stopped):
    async def stop(self) -> None:
        await super().stop()
        await asyncio.Event().wait()


class FailsToStart(Stopped):
    async def start(self) -> None:
        raise StartError("no disk")


async def test_a_tool_that_fails_to_stop_leaves_no_other_running(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(toolsvc.host.host, "STOP_SECONDS", 0.05)
    tools = [FailsToStop("a"), NeverStops("b"), Stopped("c")]
    with capture_logs() as logged:
        async with Host(tools):
            pass
    assert [tool.stopped for tool in tools] == [1, 1, 1]
    said = [line["tool"] for line in logged if line["event"] == "stop failed"]
    assert said == ["b", "a"]


async def test_what_keeps_a_host_from_starting_is_told_though_a_stop_fails_too() -> None:
    tools = [Stopped("a"), FailsToStop("b"), FailsToStart("c"), Stopped("d")]
    with pytest.raises(StartError, match="no disk"):
        async with Host(tools):
            raise AssertionError("it started")
    assert [tool.stopped for tool in tools] == [1, 1, 1, 0]


async def test_a_session_that_cannot_be_ended_leaves_no_tool_running(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def fails(self: OpenSession) -> None:
        raise OSError("no thread")

    tool = Stopped("a")
    async with hosting(tool) as host:
        await host.open(opening("t"))
        monkeypatch.setattr(OpenSession, "close_tools", fails)
    assert tool.stopped == 1
    assert host.session_ids == []


async def test_a_call_that_does_not_heed_its_cancelling_keeps_no_tool_running(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    may_end = asyncio.Event()

    class Heedless(Stopped):
        async def call(self, state: object, call: Call) -> str:
            self.runs.set()
            while not may_end.is_set():
                with contextlib.suppress(asyncio.CancelledError):
                    await may_end.wait()
            return "at last"

    monkeypatch.setattr(toolsvc.host.sessions, "CALLS_SECONDS", 0.05)
    tool = Heedless("counter")
    async with asyncio.timeout(10):
        async with hosting(tool) as host:
            running = host.begin(calling("a"))
            await tool.runs.wait()
        assert (tool.closed, tool.stopped) == (["s"], 1)
        may_end.set()
        assert running.task is not None
        await asyncio.wait((running.task,))
