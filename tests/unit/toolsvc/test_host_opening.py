"""Opening sessions, with tools that need no sandbox."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tests.support.hosts import Counter, SlowToClose, opening, refused
from toolsvc.errors import Reason
from toolsvc.host.host import Host
from toolsvc.plugin.tool import Tool
from toolsvc.types import (
    SessionInfo,
)


async def test_a_tool_that_cannot_open_leaves_no_session() -> None:
    counter = Counter()

    class Broken(Counter):
        name = "broken"

        async def open(self, session: SessionInfo) -> list[Any]:
            raise OSError("no disk")

    async with Host([counter, Broken()]) as host:
        with pytest.raises(OSError, match="no disk"):
            await host.open(opening())
        assert host.session_ids == []
        assert counter.closed == ["s"]


async def test_opening_has_a_queue_limit_too() -> None:
    class Slow(Counter):
        name = "slow"

        async def open(self, session: SessionInfo) -> list[Any]:
            await asyncio.Event().wait()
            return []

    counter = Counter()
    async with Host([counter, Slow()]) as host:
        with refused(Reason.QUEUE_LIMIT) as failure:
            await host.open(opening(queue_limit=0.05))
        assert failure.value.retry_after is not None
        assert host.session_ids == []
        assert counter.closed == ["s"]


async def test_a_retry_joins_an_opening_that_fails_until_its_states_are_closed() -> None:
    class Broken(Counter):
        name = "broken"

        async def open(self, session: SessionInfo) -> list[Any]:
            raise OSError("no disk")

    tool = SlowToClose()
    async with Host([tool, Broken()]) as host:
        first = asyncio.create_task(host.open(opening()))
        await tool.closes.wait()
        retry = asyncio.create_task(host.open(opening()))
        await asyncio.sleep(0)
        tool.may_close.set()
        for attempt in (first, retry):
            with pytest.raises(OSError, match="no disk"):
                await attempt
        assert tool.closed == ["s"]
        assert host.session_ids == []


async def test_opening_again_never_shortens_the_lease(host: Host) -> None:
    await host.open(opening("long", lease=100.0))
    await host.open(opening("long", lease=0.001))
    await host.open(opening("short", lease=0.001))
    async with asyncio.timeout(30):
        while "short" in host.session_ids:  # noqa: ASYNC110 - the reaper tells nobody
            await asyncio.sleep(0.01)
    assert host.session_ids == ["long"]


class Stalls(Counter):
    """Never opens."""

    name = "stalls"

    def __init__(self) -> None:
        super().__init__()
        self.opens = asyncio.Event()

    async def open(self, session: SessionInfo) -> list[Any]:
        self.opens.set()
        await asyncio.Event().wait()
        return []


async def test_a_session_that_is_closed_while_it_is_being_opened_ends_at_once(
    counter: Counter,
) -> None:
    stalls = Stalls()
    async with Host([counter, stalls]) as host:
        asked = asyncio.create_task(host.open(opening(queue_limit=60.0)))
        await stalls.opens.wait()
        async with asyncio.timeout(10):
            assert await host.close("s")
            with refused(Reason.SESSION_CLOSED):
                await asked
        assert counter.closed == ["s"]
        assert host.session_ids == []
        assert not await host.close("s")
        with refused(Reason.SESSION_CLOSED):
            await host.open(opening())


async def test_leaving_the_host_ends_what_is_being_opened(counter: Counter) -> None:
    stalls = Stalls()
    async with asyncio.timeout(10):
        async with Host([counter, stalls]) as host:
            asked = asyncio.create_task(host.open(opening(queue_limit=60.0)))
            await stalls.opens.wait()
            await host.drain(5.0)
        with refused(Reason.SESSION_CLOSED) as failure:
            await asked
    assert "the service stopped" in str(failure.value)
    assert counter.closed == ["s"]


class Threaded(Tool):
    """Opens in a thread, when it may."""

    name = "threaded"
    stateful = True

    def __init__(self) -> None:
        self.opens, self.may_open = threading.Event(), threading.Event()
        self.closed: list[str] = []

    def open(self, session: SessionInfo) -> str:
        self.opens.set()
        assert self.may_open.wait(20)
        return session.session_id

    def close(self, state: str) -> None:
        self.closed.append(state)


async def test_a_state_that_is_made_too_late_is_closed(
    until: Callable[[Callable[[], bool]], Awaitable[None]],
) -> None:
    tool = Threaded()
    async with Host([tool]) as host:
        asked = asyncio.create_task(host.open(opening()))
        await until(tool.opens.is_set)
        assert await host.close("s")
        with refused(Reason.SESSION_CLOSED):
            await asked
        assert tool.closed == []
        tool.may_open.set()
        await until(lambda: tool.closed == ["s"])
