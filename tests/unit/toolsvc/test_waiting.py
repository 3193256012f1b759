"""Waiting for a backend is no part of a call's run, and what ends there is nothing to be read."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

import toolsvc.plugin.waiting
from tests.support.hosts import Counter, calling, hosting, opening, refused, said
from tests.support.waiting import holds_for
from toolsvc import InvalidAction, ToolFailed, waiting
from toolsvc.errors import Reason, Refused
from toolsvc.host.host import Host
from toolsvc.plugin.tool import Tool
from toolsvc.types import Call, Recorded, Running, SessionInfo
from toolwright.types import ToolErrorKind


class Asks(Counter):
    """Waits for an answer, then runs for as long as the action says."""

    def __init__(self) -> None:
        super().__init__()
        self.answer = asyncio.Event()

    async def call(self, state: list[Any], call: Call) -> str:
        self.calls += 1
        self.runs.set()
        with waiting("the oracle"):
            await self.answer.wait()
        await asyncio.sleep(float(call.arguments["text"]))
        return "42"


async def test_a_call_that_waits_for_longer_than_it_may_run_gets_its_answer() -> None:
    tool = Asks()
    async with hosting(tool) as host:
        loop = asyncio.get_running_loop()
        began = loop.time()
        slow = {"run_limit": 0.05, "wait": 0.1}
        waits = await host.call(calling("a", **slow))
        assert isinstance(waits, Running)
        assert waits.queued > 0.09
        assert waits.run < 0.05
        tool.answer.set()
        answer = await host.call(calling("a", **slow))
        took = loop.time() - began
    assert said(answer) == "42"
    assert isinstance(answer, Recorded)
    assert answer.queued > 0.09
    assert answer.run < 0.05
    assert answer.queued + answer.run <= took


async def test_what_a_call_runs_after_it_has_waited_counts() -> None:
    tool = Asks()
    tool.answer.set()
    async with hosting(tool) as host:
        answer = await host.call(calling("a", 60, run_limit=0.05))
    assert answer.result.error.kind is ToolErrorKind.TIMEOUT
    assert answer.run > 0.04


async def test_a_call_that_waits_for_too_long_is_refused_and_may_come_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tool = Asks()
    async with hosting(tool) as host:
        with monkeypatch.context() as patch:
            patch.setattr(toolsvc.plugin.waiting, "WAIT_SECONDS", 0.05)
            with refused(Reason.BACKEND_DOWN) as failure:
                await host.call(calling("a", run_limit=0.01))
        assert failure.value.retry_after is not None
        assert "counter waited 0.05 s for the oracle" in failure.value.message
        assert host.look("s").call_ids == ()
        tool.answer.set()
        assert said(await host.call(calling("a"))) == "42"
        assert tool.calls == 2


async def test_a_call_can_be_cancelled_while_it_waits() -> None:
    tool = Asks()
    async with hosting(tool) as host:
        asked = asyncio.create_task(host.call(calling("a", run_limit=0.01)))
        await tool.runs.wait()
        assert host.cancel("s", "a")
        answer = await asked
    assert answer.result.error.kind is ToolErrorKind.CANCELLED


class Does(Tool):
    """Whatever it is told, while it waits."""

    name = "counter"

    def __init__(self, does: Callable[[], Any]) -> None:
        self._does = does

    async def call(self, state: None, call: Call) -> str:
        with waiting("the oracle"):
            return str(await self._does())


async def late() -> None:
    async with asyncio.timeout(0):
        await asyncio.Event().wait()


async def gone() -> None:
    raise ConnectionResetError("reset by peer")


async def cancelled() -> None:
    theirs: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    theirs.cancel()
    await theirs


async def will_not() -> None:
    raise Refused(Reason.BACKEND_DOWN, "no credit")


@pytest.mark.parametrize(
    ("does", "says", "again"),
    [
        (late, "the oracle: TimeoutError", True),
        (gone, "the oracle: reset by peer", True),
        (cancelled, "the oracle: CancelledError", True),
        (will_not, "no credit", False),
    ],
)
async def test_what_goes_wrong_while_a_call_waits_is_a_refusal(
    does: Callable[[], Any], says: str, again: bool
) -> None:
    async with hosting(Does(does)) as host:
        with refused(Reason.BACKEND_DOWN) as failure:
            await host.call(calling("a"))
    assert failure.value.message == says
    assert (failure.value.retry_after is not None) == again


@pytest.mark.parametrize("error", [ToolFailed("no such page"), InvalidAction("no such page")])
async def test_what_a_tool_says_to_the_policy_goes_through(error: Exception) -> None:
    async def fails() -> None:
        raise error

    async with hosting(Does(fails)) as host:
        assert said(await host.call(calling("a"))) == "no such page"


async def test_a_call_waits_for_as_long_as_any_part_of_it_does() -> None:
    class Several(Asks):
        async def call(self, state: list[Any], call: Call) -> str:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._short())
                group.create_task(super().call(state, call))
            return "42"

        async def _short(self) -> None:
            with waiting("a quick one"):
                await asyncio.sleep(0)

    tool = Several()
    async with hosting(tool) as host:
        waits = await host.call(calling("a", run_limit=0.05, wait=0.1))
        assert isinstance(waits, Running)
        tool.answer.set()
        assert said(await host.call(calling("a", run_limit=0.05))) == "42"


async def test_work_that_calls_share_waits_for_none_that_has_ended() -> None:
    """The first call's clock is the one that shared work knows."""
    began, may_end = asyncio.Event(), asyncio.Event()
    shared: list[asyncio.Task[None]] = []

    async def work() -> None:
        with waiting("the oracle"):
            began.set()
            await may_end.wait()

    async def first() -> None:
        shared.append(asyncio.create_task(work()))
        await began.wait()

    async with hosting(Does(first)) as host:
        answer = await host.call(calling("a"))
        assert isinstance(answer, Recorded)
        may_end.set()
        await shared[0]
        assert await host.call(calling("a")) == answer


@contextmanager
def released(event: threading.Event) -> Iterator[None]:
    """A thread that waits for it ends with the block, come what may."""
    try:
        yield
    finally:
        event.set()


class InThread(Tool):
    name = "counter"
    stateful = True

    def __init__(self) -> None:
        self.calls = 0
        self.answer = threading.Event()

    def call(self, state: None, call: Call) -> str:
        self.calls += 1
        with waiting("the oracle"):
            assert self.answer.wait(20)
        return "42"


async def test_a_plain_function_says_what_it_waits_for_too() -> None:
    tool = InThread()
    with released(tool.answer):
        async with hosting(tool) as host:
            waits = await host.call(calling("a", run_limit=0.05, wait=0.1))
            assert isinstance(waits, Running)
            tool.answer.set()
            assert said(await host.call(calling("a", run_limit=0.05))) == "42"


async def test_a_refused_call_whose_thread_goes_on_does_not_run_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(toolsvc.plugin.waiting, "WAIT_SECONDS", 0.05)
    tool = InThread()
    with released(tool.answer):
        async with hosting(tool) as host:
            for _ in range(2):
                with refused(Reason.BACKEND_DOWN):
                    await host.call(calling("a"))
            assert host.look("s").call_ids == ("a",)
            tool.answer.set()
            assert said(await host.call(calling("b"))) == "42"
    assert tool.calls == 2


class Opens(Counter):
    """Waits for an answer while its session is being opened."""

    def __init__(self) -> None:
        super().__init__()
        self.answer = asyncio.Event()

    async def open(self, session: SessionInfo) -> list[Any]:
        with waiting("the oracle"):
            await self.answer.wait()
        return []


async def test_an_opening_that_waits_is_not_cut_off_at_its_queue_limit() -> None:
    tool = Opens()
    async with Host([tool]) as host:
        asked = asyncio.create_task(host.open(opening(queue_limit=0.05)))
        await holds_for(0.2, lambda: not asked.done(), "the opening to wait")
        tool.answer.set()
        assert (await asked).session_id == "s"


async def test_an_opening_that_waits_for_too_long_leaves_no_session(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(toolsvc.plugin.waiting, "WAIT_SECONDS", 0.05)
    tool = Opens()
    async with Host([tool]) as host:
        with refused(Reason.BACKEND_DOWN) as failure:
            await host.open(opening(queue_limit=60.0))
        assert "session s waited 0.05 s for the oracle" in failure.value.message
        assert failure.value.retry_after is not None
        assert host.session_ids == []
        tool.answer.set()
        assert (await host.open(opening())).session_id == "s"
