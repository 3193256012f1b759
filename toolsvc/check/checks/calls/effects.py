"""Rule 2: same call id, same answer, and the effect at most once."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import grpc.aio

from toolsvc.check.check import check
from toolsvc.check.client import CheckClient, changed, expect_success, refused
from toolsvc.check.probe import Kind
from toolsvc.check.types import TAKEN, Rule, expect
from toolwright import wire
from toolwright.rpc.tool_service import stub_on

NAP = 0.8
"""Length of a sleeping call, in seconds."""
ARRIVAL = 0.2
"""Time for a request to arrive before its RPC is cut, in seconds."""


@check(Rule.SAME_ANSWER)
async def the_same_id_gets_the_same_answer(client: CheckClient) -> None:
    """A repeated request gets the recorded result, times included."""
    session = await client.open()
    request = session.calling()
    await session.expect_record(request, await session.result(request), "one call_id sent twice")


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
    """A failed call is recorded too: a repeated request gets the same failure."""
    session = await client.open(client.subject(Kind.FAIL))
    request = session.calling(Kind.FAIL)
    await session.expect_record(request, await session.result(request), "a failed call sent twice")


@check(Rule.SAME_ANSWER, timed=True)
async def a_retry_joins_the_call_in_flight(client: CheckClient) -> None:
    """Eight requests with one call id at once have one effect and one answer."""
    session = await client.open(client.subject(Kind.SLEEP, Kind.EFFECT, Kind.READ))
    request = session.calling(Kind.SLEEP, seconds=NAP)
    answers = await asyncio.gather(*(session.result(request) for _ in range(8)))
    expect(
        all(answer == answers[0] for answer in answers),
        "one call_id sent eight times at once: the answers differ",
    )
    await session.expect_count(1, "one call_id sent eight times at once")


@check(Rule.SAME_ANSWER, timed=True)
async def a_cancelled_rpc_stops_nothing(client: CheckClient) -> None:
    """A call continues when its RPC is cancelled, and a repeated request gets its result."""
    session = await client.open(client.subject(Kind.SLEEP, Kind.EFFECT, Kind.READ))
    request = session.calling(Kind.SLEEP, seconds=NAP)
    rpc: Any = session.stub.CallTool(request, timeout=client.seconds(30))
    await session.begin(request)
    await client.sleep(ARRIVAL)
    rpc.cancel()
    expect_success(await session.result(request), "a call whose RPC was cancelled")
    await session.expect_count(1, "a call whose RPC was cancelled")


@check(Rule.SAME_ANSWER, timed=True)
async def a_cut_connection_stops_nothing(client: CheckClient) -> None:
    """A call continues when its connection is cut, and a repeated request over another connection
    gets its result."""
    session = await client.open(client.subject(Kind.SLEEP, Kind.EFFECT, Kind.READ))
    request = session.calling(Kind.SLEEP, seconds=NAP)
    channel = client.connection.another_channel(session.opened.endpoint)
    await channel.channel_ready()
    lost: Any = stub_on(channel).CallTool(request, timeout=client.seconds(30))
    waiting = asyncio.ensure_future(_end_of(lost))
    await session.begin(request)
    await client.sleep(ARRIVAL)
    await channel.close()
    await waiting
    expect_success(await session.result(request), "a call whose connection was cut")
    await session.expect_count(1, "a call whose connection was cut")


async def _end_of(rpc: Any) -> None:
    with suppress(grpc.aio.AioRpcError, asyncio.CancelledError):
        await rpc


@check(Rule.SAME_ANSWER)
async def another_action_is_refused(client: CheckClient) -> None:
    """A known call id with another action is CALL_ID_REUSED, and nothing runs."""
    session = await client.open(client.subject(Kind.EFFECT, Kind.READ))
    request = session.calling(Kind.EFFECT)
    await session.result(request)
    other = changed(request, action=request.action + "\n")
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
        other = session.send(changed(request, **{name: value}))
        await refused(other, "CALL_ID_REUSED", doing=f"a call_id with another {name}")
    earlier = session.send(changed(request, turn=1))
    await refused(earlier, *TAKEN, doing="a call_id with an earlier turn")
    await session.expect_record(request, first, "a call_id after refused requests")


@check(Rule.SAME_ANSWER, timed=True)
async def another_action_in_flight_is_refused(client: CheckClient) -> None:
    """The call id of a call in flight with another action is CALL_ID_REUSED, and nothing runs."""
    session = await client.open(client.subject(Kind.SLEEP, Kind.EFFECT, Kind.READ))
    request = await session.asleep(NAP)
    other = changed(request, action=session.subject.action(Kind.EFFECT))
    await refused(session.send(other), "CALL_ID_REUSED", doing="a call_id in flight, reused")
    await session.result(request)
    await session.expect_count(1, "a call_id in flight, reused")


@check(Rule.SAME_ANSWER)
async def limits_are_not_the_request(client: CheckClient) -> None:
    """The same call with other limits is the same call."""
    session = await client.open()
    request = session.calling()
    first = await session.result(request)
    queue, run, wait = map(wire.duration, (7, 8, 3))
    other = changed(request, queue_limit=queue, run_limit=run, wait=wait)
    await session.expect_record(other, first, "one call_id sent with other limits")


@check(Rule.SAME_ANSWER)
async def a_refused_id_stays_free(client: CheckClient) -> None:
    """Nothing ran under a refused call id, so the same call id may run with a correct request."""
    session = await client.open()
    request = session.calling()
    wrong = session.send(changed(request, tool="no-such-tool"))
    await refused(wrong, "UNKNOWN_TOOL", doing="a call for an unknown tool")
    result = await session.result(request)
    expect(result.tool == session.subject.name, "the corrected request did not run")


@check(Rule.SAME_ANSWER)
async def ids_belong_to_their_session(client: CheckClient) -> None:
    """Two sessions may use one call id; each has its own effect."""
    subject = client.subject(Kind.EFFECT, Kind.READ)
    sessions = await client.open(subject), await client.open(subject)
    for session in sessions:
        await session.result(session.calling(Kind.EFFECT, call_id="the-same"))
    for session in sessions:
        await session.expect_count(1, "one call_id in two sessions")
