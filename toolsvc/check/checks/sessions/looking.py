"""GetSession lists the calls that ran, for the session's whole life, and changes nothing."""

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
    """Makes the calls. Returns those that GetSession must list: a service may list an invalid
    action or not."""
    understood = [request for request in requests if (await session.result(request)).valid]
    listed = {*(await session.look()).call_ids}
    return [r for r in requests if r in understood or r.call_id in listed]


async def _expect_listed(session: CheckSession, *requests: pb.CallToolRequest, after: str) -> None:
    listed = list((await session.look()).call_ids)
    ran = [request.call_id for request in requests]
    wrong = f"{after}: GetSession lists {len(listed)} calls, not these {len(ran)}"
    expect(listed == ran, wrong)


@check(Rule.HELD)
async def a_session_tells_what_ran(client: CheckClient) -> None:
    """GetSession lists the ids of the calls that ran, each once, in the order in which they ran."""
    session = await client.open()
    await _expect_listed(session, after="a new session")
    requests = [session.calling() for _ in range(3)]
    ran = await _make(session, *requests)
    await session.result(requests[0])
    await _expect_listed(session, *ran, after="three calls, one of them sent twice")


@check(Rule.HELD)
async def what_was_acknowledged_is_told_too(client: CheckClient) -> None:
    """GetSession lists calls whose results the service may forget."""
    session = await client.open()
    ran = await _make(session, *(session.calling(turn=turn) for turn in (0, 1, 5)))
    await _expect_listed(session, *ran, after="calls of turns 0 and 1, acknowledged by turn 5")


@check(Rule.HELD)
async def what_failed_is_told_too(client: CheckClient) -> None:
    """GetSession lists a call that ran and has a tool error."""
    session = await client.open(client.subject(Kind.FAIL))
    request = session.calling(Kind.FAIL)
    await session.result(request)
    await _expect_listed(session, request, after="a call that failed")


@check(Rule.HELD, timed=True)
async def what_never_ran_is_not_told(client: CheckClient) -> None:
    """GetSession does not list a call that was refused, such as for its queue limit."""
    session = await client.open(client.subject(Kind.SLEEP, parallel=False))
    long = await session.asleep(1.0)
    late = session.calling(queue_limit=wire.duration(client.seconds(0.1)))
    await refused(session.result(late), "QUEUE_LIMIT", doing="a call past its queue limit")
    unknown = session.calling(tool="no-such-tool")
    await refused(session.send(unknown), "UNKNOWN_TOOL", doing="a call for an unknown tool")
    await _expect_listed(session, long, after="a call that ran and two refused calls")


@check(Rule.HELD)
async def a_session_tells_its_tools(client: CheckClient) -> None:
    """GetSession names the tools that OpenSession named, unless a call has added some."""
    session = await client.open()
    found = sorted(tool.name for tool in (await session.look()).tools)
    named = sorted(tool.name for tool in session.opened.tools)
    expect(found == named, f"GetSession names the tools {found}, OpenSession {named}")


@check(Rule.HELD)
async def a_session_that_is_not_here_tells_nothing(client: CheckClient) -> None:
    """GetSession of a session that was never opened is SESSION_NOT_FOUND. It refuses a closed
    session too."""
    session = await client.open()
    await session.look()
    unknown = pb.GetSessionRequest(session_id=f"{client.owner}/never-opened")
    await refused(
        ask(client.stub.GetSession, unknown), "SESSION_NOT_FOUND", doing="an unknown session"
    )
    await session.close()
    await refused(session.look(), *GONE, doing="GetSession of a closed session")


@check(Rule.HELD, timed=True)
async def looking_renews_no_lease(client: CheckClient) -> None:
    """A session ends with its lease, even if GetSession is called often."""
    session = await client.open(lease=wire.duration(client.seconds(SHORT)))
    until = time.monotonic() + client.seconds(SHORT) + GRACE
    while time.monotonic() < until:
        try:
            await session.look()
        except Refusal as refusal:
            expect(refusal.reason in GONE, f"a session whose lease ended: {refusal}")
            return
        await asyncio.sleep(0.1)
    raise CheckFailed(f"GetSession keeps a session {GRACE:g} s longer than its lease")
