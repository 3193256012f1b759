"""Rule 4, the beginning: OpenSession opens a session once."""

from __future__ import annotations

import asyncio

from toolsvc.check.check import check
from toolsvc.check.client import CheckClient, CheckSession, changed, refused
from toolsvc.check.connection import Refusal, ask
from toolsvc.check.probe import Kind
from toolsvc.check.types import Rule, Skipped, expect
from toolwright import wire
from toolwright.tool.v1 import tool_pb2 as pb


@check(Rule.SESSIONS)
async def opening_again_is_the_same_session(client: CheckClient) -> None:
    """A repeated OpenSession answers the same session with its state."""
    session = await client.open(client.subject(Kind.EFFECT, Kind.READ))
    await session.call(Kind.EFFECT)
    again = await client.send_opening(session.request)
    expect(
        again.session_id == session.id,
        f"a repeated OpenSession answered the session {again.session_id!r}",
    )
    await session.expect_count(1, "a session that was opened again")


@check(Rule.SESSIONS)
async def openings_at_once_are_one_session(client: CheckClient) -> None:
    """Several OpenSession of one id at once answer one session."""
    request = client.opening(client.subject())
    answers = await asyncio.gather(*(client.send_opening(request) for _ in range(4)))
    expect(
        all(answer.session_id == request.session_id for answer in answers),
        "four openings at once did not answer one session",
    )
    held = await client.renew(CheckSession(client, client.subject(), request, answers[0]))
    expect(list(held.held) == [request.session_id], f"held after four openings: {list(held.held)}")


@check(Rule.SESSIONS)
async def another_opening_is_refused(client: CheckClient) -> None:
    """An open session's id with another request is INVALID_REQUEST, and the session stays open."""
    session = await client.open()
    other = client.send_opening(changed(session.request, metadata=wire.struct({"another": "task"})))
    await refused(other, "INVALID_REQUEST", doing="an open id with another request")
    await session.call()


@check(Rule.SESSIONS)
async def a_session_for_an_unknown_tool_is_refused(client: CheckClient) -> None:
    """OpenSession for an unknown tool is UNKNOWN_TOOL and opens no session."""
    request = client.opening(client.subject(), tools=["no-such-tool"])
    await refused(client.send_opening(request), "UNKNOWN_TOOL", doing="a session for no tool")
    renewal = pb.RenewLeasesRequest(owner=client.owner, lease=wire.duration(60))
    held = (await ask(client.stub.RenewLeases, renewal)).held
    expect(not held, "RenewLeases holds a refused session")


@check(Rule.SESSIONS)
async def calls_go_to_the_endpoint(client: CheckClient) -> None:
    """The endpoint that OpenSession names serves calls. The address serves them too, or answers
    WRONG_ENDPOINT with that endpoint and runs nothing."""
    session = await client.open()
    endpoint = session.opened.endpoint
    if not endpoint:
        raise Skipped("the service names no other endpoint")
    request = session.calling()
    astray = CheckSession(client, session.subject, session.request, pb.OpenSessionResponse())
    try:
        await astray.send(request)
    except Refusal as refusal:
        expect(refusal.reason == "WRONG_ENDPOINT", f"a call to another process: {refusal}")
        expect(
            refusal.endpoint == endpoint,
            f"WRONG_ENDPOINT names {refusal.endpoint!r}, OpenSession {endpoint!r}",
        )
    await session.result(request)
