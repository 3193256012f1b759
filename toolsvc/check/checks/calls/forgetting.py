"""Rule 2, its end: what a later turn acknowledges may be forgotten, and never runs again."""

from __future__ import annotations

import asyncio

from toolsvc.check.check import check
from toolsvc.check.client import CheckClient, CheckSession, refused
from toolsvc.check.connection import Refusal
from toolsvc.check.probe import Kind
from toolsvc.check.types import Rule, expect
from toolwright.tool.v1 import tool_pb2 as pb

MANY = 130
"""Calls of a session: more than a service remembers that does not mean to remember all."""
AT_ONCE = 10


async def _expect_held_or_forgotten(
    session: CheckSession, request: pb.CallToolRequest, recorded: pb.CallResult, what: str
) -> None:
    try:
        answer = await session.result(request)
    except Refusal as refusal:
        expect(refusal.reason == "RESULT_FORGOTTEN", f"{what}: {refusal}, not RESULT_FORGOTTEN")
    else:
        expect(answer == recorded, f"{what} was answered with something new")


@check(Rule.SAME_ANSWER)
async def an_acknowledged_call_never_runs_again(client: CheckClient) -> None:
    """A call of a later turn acknowledges earlier results: asked again, they are the recorded ones
    or RESULT_FORGOTTEN, and nothing runs."""
    session = await client.open(client.subject(Kind.EFFECT, Kind.READ))
    request = session.calling(Kind.EFFECT, turn=0)
    recorded = await session.result(request)
    session.turn = 3
    await session.call(Kind.EFFECT)
    await _expect_held_or_forgotten(session, request, recorded, "an acknowledged call")
    await session.expect_count(2, "an acknowledged call asked again")


@check(Rule.SAME_ANSWER)
async def a_new_id_of_an_acknowledged_turn_is_refused(client: CheckClient) -> None:
    """A call id of an acknowledged turn that the service does not hold is RESULT_FORGOTTEN, and
    nothing runs."""
    session = await client.open(client.subject(Kind.EFFECT, Kind.READ))
    session.turn = 2
    await session.call(Kind.EFFECT)
    late = session.calling(Kind.EFFECT, turn=1)
    await refused(session.send(late), "RESULT_FORGOTTEN", doing="a new call of an old turn")
    await session.expect_count(1, "a new call of an old turn")


@check(Rule.SAME_ANSWER)
async def a_forgotten_id_cannot_be_used_again(client: CheckClient) -> None:
    """An acknowledged call id with another action is refused, and nothing runs."""
    session = await client.open(client.subject(Kind.EFFECT, Kind.READ))
    request = session.calling(Kind.EFFECT, turn=0)
    await session.result(request)
    session.turn = 1
    await session.call(Kind.EFFECT)
    other = pb.CallToolRequest()
    other.CopyFrom(request)
    other.turns_left += 1
    other.turn = 1
    await refused(
        session.send(other),
        "CALL_ID_REUSED",
        "RESULT_FORGOTTEN",
        doing="an acknowledged call_id with another request",
    )
    await session.expect_count(2, "an acknowledged call_id with another request")


@check(Rule.SAME_ANSWER)
async def a_turn_does_not_acknowledge_itself(client: CheckClient) -> None:
    """Results of the newest turn are held, however many calls it has."""
    session = await client.open()
    session.turn = 4
    requests = [session.calling() for _ in range(3)]
    recorded = [await session.result(request) for request in requests]
    for request, result in zip(requests, recorded, strict=True):
        expect(await session.result(request) == result, "a result of the newest turn was not held")


@check(Rule.SAME_ANSWER)
async def many_calls_are_all_remembered(client: CheckClient) -> None:
    """Of 130 calls of one turn each is held; of 130 acknowledged ones none runs again."""
    session = await client.open()
    requests = [session.calling(turn=0) for _ in range(MANY)]
    recorded = await _results(session, requests)
    again = await _results(session, requests)
    lost = sum(one != other for one, other in zip(recorded, again, strict=True))
    expect(not lost, f"of {MANY} calls of one turn {lost} were answered otherwise when asked again")
    await session.call(turn=1)
    for request in requests:
        other = pb.CallToolRequest()
        other.CopyFrom(request)
        other.turn = 1
        await refused(
            session.send(other),
            "CALL_ID_REUSED",
            "RESULT_FORGOTTEN",
            doing=f"one of {MANY} acknowledged call_ids in a later turn",
        )


async def _results(
    session: CheckSession, requests: list[pb.CallToolRequest]
) -> list[pb.CallResult]:
    """Of the calls, a few of them at a time."""
    results: list[pb.CallResult] = []
    for at in range(0, len(requests), AT_ONCE):
        results += await asyncio.gather(*map(session.result, requests[at : at + AT_ONCE]))
    return results
