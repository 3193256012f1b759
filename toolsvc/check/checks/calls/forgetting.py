"""Rule 2 for old turns: a service may forget an acknowledged call, and never runs it again."""

from __future__ import annotations

import asyncio

from toolsvc.check.check import check
from toolsvc.check.client import CheckClient, CheckSession, changed, refused
from toolsvc.check.connection import Refusal
from toolsvc.check.probe import Kind
from toolsvc.check.types import TAKEN, Rule, expect
from toolwright.tool.v1 import tool_pb2 as pb

MANY = 130
"""Number of calls in a session. A service with a small memory does not hold so many."""
AT_ONCE = 10


@check(Rule.SAME_ANSWER)
async def an_acknowledged_call_never_runs_again(client: CheckClient) -> None:
    """A call of a later turn acknowledges earlier results. A repeated acknowledged call answers its
    record or RESULT_FORGOTTEN, and nothing runs."""
    session = await client.open(client.subject(Kind.EFFECT, Kind.READ))
    request = session.calling(Kind.EFFECT, turn=0)
    recorded = await session.result(request)
    session.turn = 3
    await session.call(Kind.EFFECT)
    try:
        await session.expect_record(request, recorded, "an acknowledged call")
    except Refusal as refusal:
        expect(refusal.reason == "RESULT_FORGOTTEN", f"an acknowledged call: {refusal}")
    await session.expect_count(2, "a repeated acknowledged call")


@check(Rule.SAME_ANSWER)
async def a_new_id_of_an_acknowledged_turn_is_refused(client: CheckClient) -> None:
    """An unknown call id of an acknowledged turn is RESULT_FORGOTTEN, and nothing runs."""
    session = await client.open(client.subject(Kind.EFFECT, Kind.READ))
    session.turn = 2
    await session.call(Kind.EFFECT)
    late = session.calling(Kind.EFFECT, turn=1)
    await refused(session.send(late), "RESULT_FORGOTTEN", doing="a new call of an old turn")
    await session.expect_count(1, "a new call of an old turn")


@check(Rule.SAME_ANSWER)
async def a_forgotten_id_cannot_be_used_again(client: CheckClient) -> None:
    """An acknowledged call id with another request is refused, and nothing runs."""
    session = await client.open(client.subject(Kind.EFFECT, Kind.READ))
    request = session.calling(Kind.EFFECT, turn=0)
    await session.result(request)
    session.turn = 1
    await session.call(Kind.EFFECT)
    other = changed(request, turns_left=request.turns_left + 1, turn=1)
    doing = "an acknowledged call_id with another request"
    await refused(session.send(other), *TAKEN, doing=doing)
    await session.expect_count(2, doing)


@check(Rule.SAME_ANSWER)
async def a_turn_does_not_acknowledge_itself(client: CheckClient) -> None:
    """The service holds results of the newest turn, for any number of calls."""
    session = await client.open()
    session.turn = 4
    requests = [session.calling() for _ in range(3)]
    recorded = [await session.result(request) for request in requests]
    for request, result in zip(requests, recorded, strict=True):
        await session.expect_record(request, result, "a call of the newest turn")


@check(Rule.SAME_ANSWER)
async def many_calls_are_all_remembered(client: CheckClient) -> None:
    """The service holds 130 calls of one turn, and does not run 130 acknowledged calls again."""
    session = await client.open()
    requests = [session.calling(turn=0) for _ in range(MANY)]
    recorded = await _results(session, requests)
    again = await _results(session, requests)
    lost = sum(one != other for one, other in zip(recorded, again, strict=True))
    expect(not lost, f"{lost} of {MANY} repeated calls of one turn had another answer")
    await session.call(turn=1)
    doing = f"one of {MANY} acknowledged call_ids in a later turn"
    for request in requests:
        await refused(session.send(changed(request, turn=1)), *TAKEN, doing=doing)


async def _results(
    session: CheckSession, requests: list[pb.CallToolRequest]
) -> list[pb.CallResult]:
    """The calls' results; a few calls are in flight at a time."""
    results: list[pb.CallResult] = []
    for at in range(0, len(requests), AT_ONCE):
        results += await asyncio.gather(*map(session.result, requests[at : at + AT_ONCE]))
    return results
