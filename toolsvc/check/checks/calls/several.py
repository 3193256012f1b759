"""Rule 7: several calls at once are matched by their ids."""

from __future__ import annotations

import asyncio

from toolsvc.check.check import check
from toolsvc.check.client import CheckClient, text_of
from toolsvc.check.connection import Refusal
from toolsvc.check.probe import Kind
from toolsvc.check.types import Rule, expect
from toolwright.tool.v1 import tool_pb2 as pb

MANY_SESSIONS = 16
"""Sessions opened at once. A service with room for fewer gets fewer."""


@check(Rule.SEVERAL_CALLS)
async def answers_are_matched_by_id(client: CheckClient) -> None:
    """Eight calls of one turn at once get each the answer to its own action."""
    session = await client.open(client.subject(Kind.ECHO))
    texts = [f"word-{number}-" for number in range(8)]
    results = await asyncio.gather(*(session.call(Kind.ECHO, text=text) for text in texts))
    for text, result in zip(texts, results, strict=True):
        expect(text in text_of(result), f"the call for {text!r} got {text_of(result)[:40]!r}")


@check(Rule.SEVERAL_CALLS)
async def many_answers_are_matched_by_id(client: CheckClient) -> None:
    """Ninety calls of three sessions at once get each the answer to its own action, and asked
    again, all at once, its own record."""
    subject = client.subject(Kind.ECHO)
    sessions = [await client.open(subject) for _ in range(3)]
    if Kind.SLEEP in subject.probe and not subject.descriptor.parallel_calls:
        for session in sessions:  # so that what comes behind is in flight together
            await session.begin(session.calling(Kind.SLEEP, seconds=0.5))
    texts = {f"word-{number}-": sessions[number % 3] for number in range(90)}
    calls = [(session, session.calling(Kind.ECHO, text=text)) for text, session in texts.items()]
    for _ in range(2):
        results = await asyncio.gather(*(session.result(request) for session, request in calls))
        for text, result in zip(texts, results, strict=True):
            expect(text in text_of(result), f"the call for {text!r} got {text_of(result)[:40]!r}")


@check(Rule.SEVERAL_CALLS)
async def answers_of_many_sessions_are_matched_by_id(client: CheckClient) -> None:
    """While calls of sixteen sessions run at once, each gets the answer to its own action."""
    subject = client.subject(Kind.ECHO)
    sessions = [await client.open(subject)]
    for _ in range(MANY_SESSIONS - 1):
        try:
            sessions.append(await client.open(subject))
        except Refusal as refusal:
            if refusal.reason != "TOO_MANY_SESSIONS":
                raise
            break
    if Kind.SLEEP in subject.probe:  # so that they run together
        for session in sessions:
            await session.begin(session.calling(Kind.SLEEP, seconds=0.5))
    texts = [f"word-{number}-" for number in range(len(sessions))]
    results = await asyncio.gather(
        *(session.call(Kind.ECHO, text=text) for session, text in zip(sessions, texts, strict=True))
    )
    for text, result in zip(texts, results, strict=True):
        expect(text in text_of(result), f"the call for {text!r} got {text_of(result)[:40]!r}")


@check(Rule.SEVERAL_CALLS)
async def records_are_matched_by_id(client: CheckClient) -> None:
    """Asked again, each of several calls of one turn gets its own record."""
    session = await client.open(client.subject(Kind.ECHO))
    texts = [f"word-{number}-" for number in range(4)]
    requests = [session.calling(Kind.ECHO, text=text) for text in texts]
    await asyncio.gather(*map(session.result, requests))
    again = await asyncio.gather(*map(session.result, reversed(requests)))
    for text, result in zip(reversed(texts), again, strict=True):
        expect(text in text_of(result), f"the record of {text!r} is {text_of(result)[:40]!r}")


@check(Rule.SEVERAL_CALLS, timed=True)
async def parallel_calls_overlap(client: CheckClient) -> None:
    """A tool with parallel calls answers a short call while a long one of the session sleeps."""
    session = await client.open(client.subject(Kind.SLEEP, parallel=True))
    long = session.calling(Kind.SLEEP, seconds=1.5)
    await session.begin(long)
    short = await session.call(Kind.SLEEP, seconds=0.01)
    expect(not short.HasField("error"), f"the short call failed: {short.error.message}")
    long.wait.Clear()
    long.wait.SetInParent()
    answer = await session.send(long)
    expect(answer.HasField("running"), "a short call waited for a long one of a parallel tool")


@check(Rule.SEVERAL_CALLS, timed=True)
async def serial_calls_keep_their_order(client: CheckClient) -> None:
    """A tool without parallel calls runs the calls of a session one after another, in the order
    of asking."""
    subject = client.subject(Kind.SLEEP, Kind.EFFECT, Kind.READ, parallel=False)
    session = await client.open(subject)
    first = session.calling(Kind.SLEEP, seconds=0.5)
    await session.begin(first)
    seen = await session.count()
    expect(seen == 1, f"a call that was sent second saw {seen} of the first one's effects")


@check(Rule.SEVERAL_CALLS)
async def concurrent_effects_all_count(client: CheckClient) -> None:
    """Eight calls with one effect each, sent at once under ids of their own, have eight."""
    session = await client.open(client.subject(Kind.EFFECT, Kind.READ))
    requests: list[pb.CallToolRequest] = [session.calling(Kind.EFFECT) for _ in range(8)]
    await asyncio.gather(*map(session.result, requests))
    await session.expect_count(8, "eight calls at once")
