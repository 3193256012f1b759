"""Leasing, closing and draining sessions, with tools that need no sandbox."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

import toolsvc.host.admission
import toolsvc.host.host
import toolsvc.host.task_blobs
import toolsvc.host.turnstile
from tests.support.hosts import Counter, SlowToClose, calling, opening, refused, said
from toolsvc.errors import Reason
from toolsvc.host.host import Host
from toolsvc.plugin.tool import LiveState, Tool
from toolsvc.types import SessionInfo


async def test_a_session_has_a_state_of_its_own(host: Host) -> None:
    await host.open(opening("s"))
    await host.open(opening("t"))
    assert said(await host.call(calling("a"))) == "1"
    assert said(await host.call(calling("b"))) == "2"
    assert said(await host.call(calling("a", session="t"))) == "1"


async def test_closing_ends_calls_and_states_and_is_idempotent(
    host: Host, counter: Counter
) -> None:
    await host.open(opening())
    caller = asyncio.create_task(host.call(calling("a", 10)))
    await counter.runs.wait()
    assert await host.close("s")
    with refused(Reason.SESSION_CLOSED):
        await caller
    assert counter.closed == ["s"]
    assert not await host.close("s")
    with refused(Reason.SESSION_CLOSED):
        await host.call(calling("b"))
    with refused(Reason.SESSION_CLOSED):
        await host.open(opening())
    with refused(Reason.SESSION_NOT_FOUND):
        await host.call(calling("b", session="never"))


async def test_a_lease_that_is_not_renewed_ends_the_session(
    monkeypatch: pytest.MonkeyPatch,
    counter: Counter,
    until: Callable[[Callable[[], bool]], Awaitable[None]],
) -> None:
    monkeypatch.setattr(toolsvc.host.host, "REAP_SECONDS", 0.02)
    async with Host([counter]) as host:
        await host.open(opening("short", lease=0.15))
        await host.open(opening("long", lease=0.15))
        await host.open(opening("other", owner="p", lease=0.15))
        leases = host.renew("o", 60.0, ["long", "short", "gone"])
        assert leases.lost == ("gone",)
        assert set(leases.held) == {"short", "long"}
        await until(lambda: counter.closed == ["other"])
        assert set(host.session_ids) == {"short", "long"}
        assert host.renew("p", 60.0, ["other"]).lost == ("other",)
        with refused(Reason.SESSION_CLOSED):
            await host.call(calling("a", session="other"))


async def test_a_renewal_says_which_sessions_have_lost_their_state() -> None:
    class State(LiveState):
        lost: str | None = None

    class Forgetful(Tool):
        name = "forgetful"

        def open(self, session: SessionInfo) -> State:
            state = State()
            state.lost = "its process died" if session.session_id == "gone" else None
            return state

    async with Host([Forgetful()]) as host:
        for name in ("here", "gone"):
            await host.open(opening(name))
        leases = host.renew("o", 60.0, ["here", "gone"])
        assert (leases.held, leases.lost) == (("here",), ("gone",))


async def test_a_full_service_says_when_to_come_back(counter: Counter) -> None:
    async with Host([counter], max_sessions=1) as host:
        await host.open(opening("s"))
        with refused(Reason.TOO_MANY_SESSIONS) as failure:
            await host.open(opening("t"))
        assert failure.value.retry_after is not None
        await host.close("s")
        await host.open(opening("t"))


async def test_draining_begins_nothing_and_lets_what_runs_end(host: Host, counter: Counter) -> None:
    await host.open(opening())
    await host.call(calling("done"))
    counter.runs.clear()
    running = asyncio.create_task(host.call(calling("a", 0.2)))
    await counter.runs.wait()
    draining = asyncio.create_task(host.drain(5.0))
    await asyncio.sleep(0)
    with refused(Reason.DRAINING):
        await host.call(calling("b"))
    with refused(Reason.DRAINING):
        await host.open(opening("t"))
    assert said(await host.call(calling("done"))) == "1"
    assert said(await running) == "2"
    await draining


async def test_a_drain_waits_no_longer_than_its_grace(host: Host, counter: Counter) -> None:
    await host.open(opening())
    running = host.begin(calling("a", 30))
    await counter.runs.wait()
    async with asyncio.timeout(5):
        await host.drain(0.05)
    assert running.outcome is None


async def test_leaving_the_host_closes_every_state(counter: Counter) -> None:
    async with Host([counter]) as host:
        for name in "abc":
            await host.open(opening(name))
        caller = asyncio.create_task(host.call(calling("x", 10, session="a")))
        await counter.runs.wait()
    assert sorted(counter.closed) == ["a", "b", "c"]
    with refused(Reason.SESSION_CLOSED):
        await caller


async def test_a_close_goes_on_without_its_caller() -> None:
    tool = SlowToClose()
    async with Host([tool]) as host:
        await host.open(opening())
        closing = asyncio.create_task(host.close("s"))
        await tool.closes.wait()
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        tool.may_close.set()
    assert tool.closed == ["s"]


async def test_a_session_may_end_before_its_call_has_begun(host: Host, counter: Counter) -> None:
    await host.open(opening())
    caller = asyncio.create_task(host.call(calling("a")))
    closer = asyncio.create_task(host.close("s"))
    async with asyncio.timeout(10):
        with refused(Reason.SESSION_CLOSED):
            await caller
    assert await closer
    assert counter.calls == 0
