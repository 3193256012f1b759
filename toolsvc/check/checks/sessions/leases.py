"""Leases: one renewal for all sessions of an owner. A session without renewal ends."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

from toolsvc.check.check import check
from toolsvc.check.client import CheckClient, CheckSession, refused
from toolsvc.check.connection import Refusal, ask
from toolsvc.check.names import near_misses
from toolsvc.check.probe import Kind
from toolsvc.check.types import GONE, CheckFailed, Rule, expect
from toolwright import wire
from toolwright.tool.v1 import tool_pb2 as pb

SHORT = 0.6
"""A lease that ends during a check, in seconds."""
GRACE = 6.0
"""Time in which a service must notice that a lease has ended, in seconds."""


async def _nothing() -> None:
    return


async def _until_gone(
    session: CheckSession, more: float = 0.0, doing: Callable[[], Awaitable[None]] = _nothing
) -> None:
    """Waits until the session has ended, at most `more` seconds longer than a short lease. Sends
    CancelCall for an unknown call: only that request changes nothing, not even a lease. Calls
    `doing` between the requests."""
    until = time.monotonic() + session.client.seconds(SHORT + more) + GRACE
    while time.monotonic() < until:
        try:
            await session.cancel("no-such-call")
        except Refusal as refusal:
            expect(refusal.reason in GONE, f"a session whose lease ended: {refusal}")
            return
        await doing()
        await asyncio.sleep(0.1)
    raise CheckFailed(f"a session is still open {GRACE:g} s after its lease ended")


@check(Rule.LEASE, timed=True)
async def what_is_not_renewed_ends(client: CheckClient) -> None:
    """A session without renewal ends: its calls are refused, and RenewLeases calls it lost."""
    session = await client.open(lease=wire.duration(client.seconds(SHORT)))
    await _until_gone(session)
    await refused(session.send(session.calling()), *GONE, doing="a call after the lease's end")
    leases = await client.renew(session, session.id)
    expect(session.id in leases.lost, "RenewLeases does not call a session lost whose lease ended")
    expect(session.id not in leases.held, "RenewLeases holds a session whose lease ended")


@check(Rule.LEASE, timed=True)
async def what_is_renewed_stays(client: CheckClient) -> None:
    """Sessions that one RenewLeases renews outlive their first lease."""
    lease = client.seconds(1.5)
    sessions = [await client.open(lease=wire.duration(lease)) for _ in range(2)]
    until = time.monotonic() + 2.5 * lease
    while time.monotonic() < until:
        leases = await client.renew(sessions[0], lease=lease)
        held = sorted(leases.held)
        expect(held == sorted(one.id for one in sessions), f"RenewLeases holds {len(held)} of 2")
        await asyncio.sleep(lease / 4)
    for session in sessions:
        await session.call()


@check(Rule.LEASE, timed=True)
async def a_longer_lease_counts_from_its_renewal(client: CheckClient) -> None:
    """A session with one renewal for a long lease outlives its first, short lease."""
    session = await client.open(lease=wire.duration(client.seconds(SHORT)))
    await client.renew(session, lease=60)
    await client.sleep(SHORT + 1.5)
    await session.call()


@check(Rule.LEASE, timed=True)
async def what_strangers_renew_ends(client: CheckClient) -> None:
    """A session ends with its lease, even if owners with almost the same name renew theirs."""
    lease = wire.duration(client.seconds(2 * SHORT))
    session = await client.open(lease=lease)
    strangers = [owner for owner in near_misses(client.owner) if owner != client.owner]

    async def renew() -> None:
        for owner in (client.owner[:-1], *strangers):
            await ask(session.stub.RenewLeases, pb.RenewLeasesRequest(owner=owner))

    await _until_gone(session, SHORT, renew)


@check(Rule.LEASE, timed=True)
async def a_lease_ends_calls(client: CheckClient) -> None:
    """The end of a lease stops a call in flight, which is refused."""
    session = await client.open(
        client.subject(Kind.SLEEP), lease=wire.duration(client.seconds(SHORT))
    )
    request = session.calling(Kind.SLEEP, seconds=SHORT + GRACE + 4)
    await refused(session.result(request), *GONE, doing="a call in flight at the lease's end")


@check(Rule.LEASE)
async def the_held_and_the_lost_are_told(client: CheckClient) -> None:
    """RenewLeases names all sessions of the owner as held, and unknown sessions as lost."""
    session, another = await client.open(), await client.open()
    leases = await client.renew(session, session.id, "never-opened")
    expect(
        sorted(leases.held) == sorted((session.id, another.id)),
        f"of 2 open sessions RenewLeases holds {len(leases.held)}",
    )
    expect(list(leases.lost) == ["never-opened"], f"RenewLeases calls lost: {list(leases.lost)}")


@check(Rule.LEASE)
async def owners_hold_their_own(client: CheckClient) -> None:
    """RenewLeases of one owner neither renews nor names the sessions of another owner."""
    session = await client.open()
    stranger = pb.RenewLeasesRequest(owner=f"{client.owner}/another", lease=wire.duration(1))
    leases = await ask(session.stub.RenewLeases, stranger)
    expect(session.id not in leases.held, "RenewLeases gave one owner the session of another")
    await session.call()
