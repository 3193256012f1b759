"""Rule 4, the end: CloseSession is idempotent, ends running calls, and is final."""

from __future__ import annotations

import asyncio

from toolsvc.check.check import check
from toolsvc.check.checks.calls.effects import ARRIVAL
from toolsvc.check.client import CheckClient, refused
from toolsvc.check.connection import Refusal, ask
from toolsvc.check.probe import Kind
from toolsvc.check.types import GONE, CheckFailed, Rule, expect
from toolwright.tool.v1 import tool_pb2 as pb

LATER = 2.5
"""Time after a close in which a service sweeps its sessions, in seconds."""


@check(Rule.SESSIONS)
async def closing_is_idempotent(client: CheckClient) -> None:
    """CloseSession says `closed` once. Repeated, it is OK and says that no session was open."""
    session = await client.open()
    expect(await session.close(), "CloseSession of an open session says that it was not open")
    for _ in range(2):
        expect(not await session.close(), "CloseSession closed a session a second time")


@check(Rule.SESSIONS)
async def closing_the_unknown_is_fine(client: CheckClient) -> None:
    """CloseSession of an unknown session is OK: the session is closed already."""
    request = pb.CloseSessionRequest(session_id=f"{client.owner}/never-opened")
    answer = await ask(client.stub.CloseSession, request)
    expect(not answer.closed, "CloseSession says that an unknown session was open")


@check(Rule.SESSIONS)
async def a_closed_session_runs_nothing(client: CheckClient) -> None:
    """A new or repeated call in a closed session is refused: SESSION_CLOSED, or SESSION_NOT_FOUND
    after the service has forgotten the session."""
    session = await client.open()
    request = session.calling()
    await session.result(request)
    await session.close()
    await refused(session.send(session.calling()), *GONE, doing="a call in a closed session")
    await refused(session.send(request), *GONE, doing="a known call in a closed session")


@check(Rule.SESSIONS, timed=True)
async def closing_ends_calls(client: CheckClient) -> None:
    """CloseSession ends a call in flight, which is refused with SESSION_CLOSED."""
    session = await client.open(client.subject(Kind.SLEEP))
    request = await session.asleep(3.0)
    waiting = asyncio.ensure_future(session.result(request))
    await client.sleep(ARRIVAL)
    expect(await session.close(), "CloseSession of a busy session says that it was not open")
    try:
        async with asyncio.timeout(client.seconds(2.5)):
            await refused(waiting, *GONE, doing="a call in flight in a closed session")
    except TimeoutError:
        raise CheckFailed("a call in flight continues after its session was closed") from None


@check(Rule.SESSIONS)
async def a_closed_session_is_not_held(client: CheckClient) -> None:
    """RenewLeases does not hold a closed session, and calls it lost if the owner names it."""
    session = await client.open()
    await session.close()
    leases = await client.renew(session, session.id)
    expect(session.id not in leases.held, "RenewLeases holds a closed session")
    expect(session.id in leases.lost, "RenewLeases does not say that a closed session is lost")


@check(Rule.SESSIONS)
async def a_closed_id_brings_nothing_back(client: CheckClient) -> None:
    """OpenSession of a closed id is SESSION_CLOSED. After the service has forgotten the id, it is a
    new session without the old state and calls."""
    session = await client.open(client.subject(Kind.EFFECT, Kind.READ))
    request = session.calling(Kind.EFFECT)
    for one in (request, session.calling(Kind.EFFECT)):
        await session.result(one)
    await session.close()
    try:
        await client.send_opening(session.request)
    except Refusal as refusal:
        expect(refusal.reason in GONE, f"OpenSession of a closed id: {refusal}")
        return
    await session.expect_count(0, "a new session under a closed id")
    await session.result(request)
    await session.expect_count(1, "a call in a new session under a closed id")


@check(Rule.SESSIONS, timed=True)
async def a_closed_id_stays_closed(client: CheckClient) -> None:
    """Two seconds after CloseSession its calls are still refused, and OpenSession of its id
    restores nothing."""
    session = await client.open(client.subject(Kind.EFFECT, Kind.READ))
    request = session.calling(Kind.EFFECT)
    await session.result(request)
    await session.close()
    await client.sleep(LATER)
    await refused(session.send(request), *GONE, doing=f"a known call {LATER} s after the close")
    try:
        await client.send_opening(session.request)
    except Refusal as refusal:
        expect(refusal.reason in GONE, f"OpenSession of a closed id: {refusal}")
        return
    await session.expect_count(0, f"a session {LATER} s after its id was closed")


@check(Rule.SESSIONS)
async def closing_one_leaves_the_others(client: CheckClient) -> None:
    """Closing one session leaves the owner's others open."""
    first, second = await client.open(), await client.open()
    await first.close()
    await second.call()
