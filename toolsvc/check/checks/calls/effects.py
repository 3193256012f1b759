"""Rule 2: same call id, same answer, and the effect at most once."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc.aio

from toolsvc.check.check import check
from toolsvc.check.client import CheckClient, CheckSession, refused
from toolsvc.check.probe import Kind
from toolsvc.check.types import CheckFailed, Rule, expect
from toolwright import wire
from toolwright.rpc.tool_service import stub_on
from toolwright.tool.v1 import tool_pb2 as pb

NAP = 0.8
"""Long enough to meet a call in flight, seconds."""
ARRIVAL = 0.2
"""For a request to be there before its RPC is cut, seconds."""


def _changed(request: pb.CallToolRequest, **fields: Any) -> pb.CallToolRequest:
    """The same call id with something else in it."""
    other = pb.CallToolRequest()
    other.CopyFrom(request)
    for name in fields:
        other.ClearField(name)  # type: ignore[arg-type]
    other.MergeFrom(pb.CallToolRequest(**fields))
    return other


def _expect_same(first: pb.CallResult, again: pb.CallResult, doing: str) -> None:
    if first == again:
        return
    differs = [
        field.name
        for field in first.DESCRIPTOR.fields
        if getattr(first, field.name) != getattr(again, field.name)
    ]
    raise CheckFailed(f"{doing}: the answers differ in {', '.join(differs)}")


@check(Rule.SAME_ANSWER)
async def the_same_id_gets_the_same_answer(client: CheckClient) -> None:
    """A repeated request gets the recorded result, times included."""
    session = await client.open()
    request = session.calling()
    _expect_same(
        await session.result(request), await session.result(request), "one call_id asked twice"
    )


@check(Rule.SAME_ANSWER)
async def a_repetition_has_no_effect(client: CheckClient) -> None:
    """A request that is sent three times has its effect once."""
    session = await client.open(client.subject(Kind.EFFECT, Kind.READ))
    request = session.calling(Kind.EFFECT)
    for _ in range(3):
        await session.result(request)
    await session.expect_count(1, "one call_id sent three times")


@check(Rule.SAME_ANSWER)
async def a_recorded_failure_stays(client: CheckClient) -> None:
    """A failed call is recorded too: asked again, it answers the same failure."""
    session = await client.open(client.subject(Kind.FAIL))
    request = session.calling(Kind.FAIL)
    _expect_same(
        await session.result(request), await session.result(request), "a failed call asked twice"
    )


@check(Rule.SAME_ANSWER, timed=True)
async def a_retry_joins_the_call_in_flight(client: CheckClient) -> None:
    """Eight requests of one call id at once have one effect and one answer."""
    session = await client.open(client.subject(Kind.SLEEP, Kind.EFFECT, Kind.READ))
    request = session.calling(Kind.SLEEP, seconds=NAP)
    answers = await asyncio.gather(*(session.result(request) for _ in range(8)))
    for answer in answers[1:]:
        _expect_same(answers[0], answer, "one call_id asked eight times at once")
    await session.expect_count(1, "one call_id asked eight times at once")


@check(Rule.SAME_ANSWER, timed=True)
async def a_cancelled_rpc_stops_nothing(client: CheckClient) -> None:
    """A call goes on when its RPC is cancelled; asked again, it answers its result."""
    session = await client.open(client.subject(Kind.SLEEP, Kind.EFFECT, Kind.READ))
    request = session.calling(Kind.SLEEP, seconds=NAP)
    rpc: Any = session.stub.CallTool(request, timeout=client.seconds(30))
    await session.begin(request)
    await client.sleep(ARRIVAL)
    rpc.cancel()
    await _expect_finished(session, request, "a call whose RPC was cancelled")


@check(Rule.SAME_ANSWER, timed=True)
async def a_cut_connection_stops_nothing(client: CheckClient) -> None:
    """A call goes on when its connection is cut; asked again over another, it answers its
    result."""
    session = await client.open(client.subject(Kind.SLEEP, Kind.EFFECT, Kind.READ))
    request = session.calling(Kind.SLEEP, seconds=NAP)
    channel = client.connection.another_channel(session.opened.endpoint)
    await channel.channel_ready()
    lost: Any = stub_on(channel).CallTool(request, timeout=client.seconds(30))
    waiting = asyncio.ensure_future(_ending(lost))
    await session.begin(request)
    await client.sleep(ARRIVAL)
    await channel.close()
    await waiting
    await _expect_finished(session, request, "a call whose connection was cut")


async def _ending(rpc: Any) -> None:
    try:
        await rpc
    except (grpc.aio.AioRpcError, asyncio.CancelledError):
        return


async def _expect_finished(session: CheckSession, request: pb.CallToolRequest, what: str) -> None:
    result = await session.result(request)
    expect(not result.HasField("error"), f"{what} ended with the tool error {result.error.message}")
    await session.expect_count(1, what)


@check(Rule.SAME_ANSWER)
async def another_action_is_refused(client: CheckClient) -> None:
    """A known call id with another action is CALL_ID_REUSED, and nothing runs."""
    session = await client.open(client.subject(Kind.EFFECT, Kind.READ))
    request = session.calling(Kind.EFFECT)
    await session.result(request)
    other = _changed(request, action=request.action + "\n")
    await refused(session.send(other), "CALL_ID_REUSED", doing="a call_id with another action")
    await session.expect_count(1, "a call_id with another action")


@check(Rule.SAME_ANSWER)
async def another_request_is_refused(client: CheckClient) -> None:
    """A known call id with another tool, turn, metadata or arguments is CALL_ID_REUSED."""
    session = await client.open()
    request = session.calling(turn=2, turns_left=5)
    first = await session.result(request)
    changes: dict[str, Any] = {
        "tool": f"{request.tool}-of-another-name",
        "turn": 3,
        "turns_left": 4,
        "last_step": True,
        "metadata": wire.struct({"another": "request"}),
        "metadata_json": '{"another": "request"}',
        "arguments": wire.struct({"another": "request"}),
        "arguments_json": '{"another": "request"}',
    }
    for name, value in changes.items():
        await refused(
            session.send(_changed(request, **{name: value})),
            "CALL_ID_REUSED",
            doing=f"a call_id with another {name}",
        )
    await refused(
        session.send(_changed(request, turn=1)),
        "CALL_ID_REUSED",
        "RESULT_FORGOTTEN",
        doing="a call_id with an earlier turn",
    )
    _expect_same(first, await session.result(request), "a call_id after refused reuses")


@check(Rule.SAME_ANSWER, timed=True)
async def another_action_in_flight_is_refused(client: CheckClient) -> None:
    """A call id that is in flight with another action is CALL_ID_REUSED, and nothing runs."""
    session = await client.open(client.subject(Kind.SLEEP, Kind.EFFECT, Kind.READ))
    request = session.calling(Kind.SLEEP, seconds=NAP)
    await session.begin(request)
    other = _changed(request, action=session.subject.action(Kind.EFFECT))
    await refused(session.send(other), "CALL_ID_REUSED", doing="a call_id in flight, reused")
    await session.result(request)
    await session.expect_count(1, "a call_id in flight, reused")


@check(Rule.SAME_ANSWER)
async def limits_are_not_the_request(client: CheckClient) -> None:
    """The same call with other limits is the same call."""
    session = await client.open()
    request = session.calling()
    first = await session.result(request)
    other = _changed(
        request,
        queue_limit=wire.duration(7),
        run_limit=wire.duration(8),
        wait=wire.duration(3),
    )
    _expect_same(first, await session.result(other), "one call_id asked with other limits")


@check(Rule.SAME_ANSWER)
async def a_refused_id_stays_free(client: CheckClient) -> None:
    """Under a refusal nothing ran, so the same call id may run with a request that is right."""
    session = await client.open()
    request = session.calling()
    wrong = _changed(request, tool="no-such-tool")
    await refused(session.send(wrong), "UNKNOWN_TOOL", doing="a call for an unknown tool")
    result = await session.result(request)
    expect(result.tool == session.subject.name, "the corrected request did not run")


@check(Rule.SAME_ANSWER)
async def ids_belong_to_their_session(client: CheckClient) -> None:
    """Two sessions may use one call id; each has its own effect."""
    subject = client.subject(Kind.EFFECT, Kind.READ)
    first, second = await client.open(subject), await client.open(subject)
    for session in (first, second):
        await session.result(session.calling(Kind.EFFECT, call_id="the-same"))
    await first.expect_count(1, "one call_id in two sessions")
    await second.expect_count(1, "one call_id in two sessions")
