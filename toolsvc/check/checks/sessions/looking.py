"""GetSession: what ran is told for the session's whole life, and nothing changes by asking."""

from __future__ import annotations

import asyncio
import time

from toolsvc.check.check import check
from toolsvc.check.checks.sessions.leases import GRACE, SHORT
from toolsvc.check.client import CheckClient, CheckSession, refused
from toolsvc.check.connection import Refusal, ask
from toolsvc.check.probe import Kind
from toolsvc.check.types import GONE, CheckFailed, Rule, expect
from toolwright import wire
from toolwright.tool.v1 import tool_pb2 as pb


async def _make(session: CheckSession, *requests: pb.CallToolRequest) -> list[pb.CallToolRequest]:
    """Makes the calls; those that GetSession must tell of. What no tool understood may have run or
    not."""
    understood = [request for request in requests if (await session.result(request)).valid]
    told = {*(await session.look()).call_ids}
    return [r for r in requests if r in understood or r.call_id in told]


async def _expect_told(session: CheckSession, *requests: pb.CallToolRequest, after: str) -> None:
    told = list((await session.look()).call_ids)
    ran = [request.call_id for request in requests]
    expect(told == ran, f"{after}: GetSession tells of {len(told)} calls, not of these {len(ran)}")


@check(Rule.HELD)
async def a_session_tells_what_ran(client: CheckClient) -> None:
    """GetSession lists the ids of the calls that ran, in the order of their running, and each
    once."""
    session = await client.open()
    await _expect_told(session, after="a new session")
    requests = [session.calling() for _ in range(3)]
    ran = await _make(session, *requests)
    await session.result(requests[0])
    await _expect_told(session, *ran, after="three calls, one of them sent twice")


@check(Rule.HELD)
async def what_was_acknowledged_is_told_too(client: CheckClient) -> None:
    """GetSession lists calls whose results may be forgotten."""
    session = await client.open()
    ran = await _make(session, *(session.calling(turn=turn) for turn in (0, 1, 5)))
    await _expect_told(session, *ran, after="calls of turns 0 and 1, acknowledged by turn 5")


@check(Rule.HELD)
async def what_failed_is_told_too(client: CheckClient) -> None:
    """GetSession lists a call that ran and came to a tool error."""
    session = await client.open(client.subject(Kind.FAIL))
    request = session.calling(Kind.FAIL)
    await session.result(request)
    await _expect_told(session, request, after="a call that failed")


@check(Rule.HELD, timed=True)
async def what_never_ran_is_not_told(client: CheckClient) -> None:
    """GetSession does not list a call that was refused, such as for its queue limit."""
    session = await client.open(client.subject(Kind.SLEEP, parallel=False))
    long = session.calling(Kind.SLEEP, seconds=1.0)
    await session.begin(long)
    late = session.calling(queue_limit=wire.duration(client.seconds(0.1)))
    await refused(session.result(late), "QUEUE_LIMIT", doing="a call past its queue limit")
    unknown = session.calling(tool="no-such-tool")
    await refused(session.send(unknown), "UNKNOWN_TOOL", doing="a call for an unknown tool")
    await _expect_told(session, long, after="a call that ran and two that were refused")


@check(Rule.HELD)
async def a_session_tells_its_tools(client: CheckClient) -> None:
    """GetSession names the tools that OpenSession named, where no call has added any."""
    session = await client.open()
    told = sorted(tool.name for tool in (await session.look()).tools)
    named = sorted(tool.name for tool in session.opened.tools)
    expect(told == named, f"GetSession names the tools {told}, OpenSession named {named}")


@check(Rule.HELD)
async def a_session_that_is_not_here_tells_nothing(client: CheckClient) -> None:
    """GetSession of a session that was never opened is SESSION_NOT_FOUND, of a closed one an error
    too."""
    session = await client.open()
    await session.look()
    nobody = pb.GetSessionRequest(session_id=f"{client.owner}/never-opened")
    await refused(
        ask(client.stub.GetSession, nobody), "SESSION_NOT_FOUND", doing="GetSession of no session"
    )
    await session.close()
    await refused(session.look(), *GONE, doing="GetSession of a closed session")


@check(Rule.HELD, timed=True)
async def looking_renews_no_lease(client: CheckClient) -> None:
    """A session ends with its lease, however often GetSession asks for it."""
    session = await client.open(lease=wire.duration(client.seconds(SHORT)))
    until = time.monotonic() + client.seconds(SHORT) + GRACE
    while time.monotonic() < until:
        try:
            await session.look()
        except Refusal as refusal:
            expect(refusal.reason in GONE, f"a session whose lease ended: {refusal}")
            return
        await asyncio.sleep(0.1)
    raise CheckFailed(f"a session that GetSession asks for outlives its lease by {GRACE:g} s")
