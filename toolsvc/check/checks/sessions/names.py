"""The service compares ids and owners exactly."""

from __future__ import annotations

import asyncio

from toolsvc.check.check import check
from toolsvc.check.client import CheckClient
from toolsvc.check.connection import ask
from toolsvc.check.names import near_misses
from toolsvc.check.probe import Kind
from toolsvc.check.types import Rule, expect
from toolwright import wire
from toolwright.tool.v1 import tool_pb2 as pb


@check(Rule.SESSIONS)
async def session_ids_are_told_apart(client: CheckClient) -> None:
    """Ids that differ in case, blanks, escapes or after 300 characters are different sessions with
    their own counters. Closing one leaves the others open."""
    subject = client.subject(Kind.EFFECT, Kind.READ)
    ids = near_misses(f"{client.owner}/near")
    sessions = [await client.open(subject, session_id=one) for one in ids]
    for effects, session in enumerate(sessions):
        await asyncio.gather(*(session.call(Kind.EFFECT) for _ in range(effects % 3)))
    for effects, session in enumerate(sessions):
        await session.expect_count(effects % 3, f"a session with the id {session.id[-12:]!r}")
    held = sorted((await client.renew(sessions[0])).held)
    expect(held == sorted(ids), f"RenewLeases holds {len(held)} of {len(ids)} sessions")
    for session in sessions[::2]:
        expect(
            await session.close(),
            f"the session {session.id[-12:]!r} was closed with another session",
        )
    for session in sessions[1::2]:
        await session.call()


@check(Rule.SAME_ANSWER)
async def call_ids_are_told_apart(client: CheckClient) -> None:
    """Ids that differ in case, blanks, escapes or after 300 characters are different calls: each
    has its effect."""
    session = await client.open(client.subject(Kind.EFFECT, Kind.READ))
    ids = near_misses("0/near")
    for one in ids:
        await session.result(session.calling(Kind.EFFECT, call_id=one))
    await session.expect_count(len(ids), f"{len(ids)} calls whose ids are almost the same")


@check(Rule.LEASE)
async def owners_are_told_apart(client: CheckClient) -> None:
    """RenewLeases of an owner does not hold sessions of an owner whose name has the same beginning,
    or differs in case or blanks."""
    owners = near_misses(client.owner)
    for owner in owners:
        await client.open(owner=owner)
    for owner in owners:
        renewal = pb.RenewLeasesRequest(owner=owner, lease=wire.duration(60))
        held = len((await ask(client.stub.RenewLeases, renewal)).held)
        expect(held == 1, f"RenewLeases of the owner {owner[-12:]!r} holds {held} sessions, not 1")
