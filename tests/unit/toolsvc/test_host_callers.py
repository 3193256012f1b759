"""A session is its opener's alone."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from tests.support.callers import asking_as
from tests.support.hosts import Counter, calling, opening, refused
from toolsvc.errors import Reason
from toolsvc.fleet.resources import NOTHING
from toolsvc.fleet.sessions import SessionTable
from toolsvc.host.host import Host
from toolsvc.types import ForkRequest

Ask = Callable[[Host], Awaitable[object]]


async def call(host: Host) -> object:
    return await host.call(calling("c"))


async def look(host: Host) -> object:
    return host.look("s")


async def cancel(host: Host) -> object:
    return host.cancel("s", "c")


async def fork(host: Host) -> object:
    return await host.fork(ForkRequest(parent="s", child=opening("child")))


@pytest.mark.parametrize("ask", [call, look, cancel, fork])
@pytest.mark.parametrize("stranger", ["bob", ""])
async def test_nobody_else_finds_it(ask: Ask, stranger: str, host: Host, counter: Counter) -> None:
    with asking_as("alice"):
        await host.open(opening())
    with asking_as(stranger), refused(Reason.SESSION_NOT_FOUND):
        await ask(host)
    assert counter.calls == 0
    with asking_as("alice"):
        await host.close("s")
    with asking_as(stranger), refused(Reason.SESSION_NOT_FOUND):
        await ask(host)
    with asking_as("alice"), refused(Reason.SESSION_CLOSED):
        await ask(host)


async def test_nobody_else_renews_closes_or_takes_its_id(host: Host) -> None:
    with asking_as("alice"):
        await host.open(opening())
    for stranger in ("bob", ""):
        with asking_as(stranger):
            assert not await host.close("s")
            leases = host.renew("o", 1e6, ["s"])
            assert (leases.held, leases.lost) == ((), ("s",))
            with refused(Reason.INVALID_REQUEST):
                await host.open(opening())
    with asking_as("alice"):
        assert host.renew("o", 1.0, ["s"]).held == ("s",)
        assert (await host.open(opening())).session_id == "s"
        assert await host.close("s")
    with asking_as("bob"), refused(Reason.INVALID_REQUEST):
        await host.open(opening())


async def test_what_nobody_is_bound_to_is_not_everybodys(host: Host) -> None:
    await host.open(opening())
    with asking_as("bob"):
        with refused(Reason.SESSION_NOT_FOUND):
            await host.call(calling("c"))
        assert not await host.close("s")


async def test_a_host_ends_what_is_anybodys(counter: Counter) -> None:
    async with Host([counter]) as host:
        for owner in ("alice", "bob"):
            with asking_as(owner):
                await host.open(opening(f"of-{owner}"))
    assert sorted(counter.closed) == ["of-alice", "of-bob"]


def test_a_front_keeps_callers_apart_too() -> None:
    sessions: SessionTable[str] = SessionTable(10, NOTHING)
    sessions.join("host")
    with asking_as("alice"):
        placed = sessions.place(opening(), NOTHING)
    for ended in (False, True):
        if ended:
            sessions.end(placed, "it was closed")
        with asking_as("bob"):
            assert sessions.get("s") is None
            assert sessions.of("o") == []
            with refused(Reason.SESSION_NOT_FOUND):
                sessions.find("s")
            with refused(Reason.INVALID_REQUEST):
                sessions.place(opening(), NOTHING)
    with asking_as("alice"), refused(Reason.SESSION_CLOSED):
        sessions.find("s")
