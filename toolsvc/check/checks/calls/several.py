"""Rule 7: several calls at once are matched by their ids."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from toolsvc.check.check import check
from toolsvc.check.client import CheckClient, expect_success, text_of
from toolsvc.check.connection import Refusal
from toolsvc.check.probe import Kind
from toolsvc.check.types import Rule, expect
from toolwright.tool.v1 import tool_pb2 as pb

MANY_SESSIONS = 16
"""Number of sessions that are opened at once. A service with less room gets fewer."""


def _words(count: int) -> list[str]:
    return [f"word-{number}-" for number in range(count)]


def _expect_words(texts: Iterable[str], results: Iterable[pb.CallResult]) -> None:
    """Raises CheckFailed unless each result has its own text."""
    for text, result in zip(texts, results, strict=True):
        expect(text in text_of(result), f"the call for {text!r} got {text_of(result)[:40]!r}")


@check(Rule.SEVERAL_CALLS)
async def answers_are_matched_by_id(client: CheckClient) -> None:
    """Each of eight calls of one turn at once gets the answer to its own action."""
    session = await client.open(client.subject(Kind.ECHO))
    texts = _words(8)
    results = await asyncio.gather(*(session.call(Kind.ECHO, text=text) for text in texts))
    _expect_words(texts, results)


@check(Rule.SEVERAL_CALLS)
async def many_answers_are_matched_by_id(client: CheckClient) -> None:
    """Each of ninety calls of three sessions at once gets the answer to its own action. Repeated at
    once, each gets its own record."""
    subject = client.subject(Kind.ECHO)
    sessions = [await client.open(subject) for _ in range(3)]
    if Kind.SLEEP in subject.probe and not subject.descriptor.parallel_calls:
        for session in sessions:  # the calls after it are in flight together
            await session.asleep(0.5)
    texts = {text: sessions[number % 3] for number, text in enumerate(_words(90))}
    calls = [(session, session.calling(Kind.ECHO, text=text)) for text, session in texts.items()]
    for _ in range(2):
        results = await asyncio.gather(*(session.result(request) for session, request in calls))
        _expect_words(texts, results)


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
    if Kind.SLEEP in subject.probe:  # the calls after it run together
        await asyncio.gather(*(session.asleep(0.5) for session in sessions))
    texts = _words(len(sessions))
    calls = [one.call(Kind.ECHO, text=text) for one, text in zip(sessions, texts, strict=True)]
    _expect_words(texts, await asyncio.gather(*calls))


@check(Rule.SEVERAL_CALLS)
async def records_are_matched_by_id(client: CheckClient) -> None:
    """Each of several repeated calls of one turn gets its own record."""
    session = await client.open(client.subject(Kind.ECHO))
    texts = _words(4)
    requests = [session.calling(Kind.ECHO, text=text) for text in texts]
    await asyncio.gather(*map(session.result, requests))
    again = await asyncio.gather(*map(session.result, reversed(requests)))
    _expect_words(reversed(texts), again)


@check(Rule.SEVERAL_CALLS, timed=True)
async def parallel_calls_overlap(client: CheckClient) -> None:
    """A tool with parallel calls answers a short call while a long call of the session sleeps."""
    session = await client.open(client.subject(Kind.SLEEP, parallel=True))
    long = await session.asleep(1.5)
    expect_success(await session.call(Kind.SLEEP, seconds=0.01), "the short call")
    await session.expect_running(long, "a short call waited for a long call of a parallel tool")


@check(Rule.SEVERAL_CALLS, timed=True)
async def serial_calls_keep_their_order(client: CheckClient) -> None:
    """A tool without parallel calls runs the calls of a session one after another, in the order
    of their requests."""
    subject = client.subject(Kind.SLEEP, Kind.EFFECT, Kind.READ, parallel=False)
    session = await client.open(subject)
    await session.asleep(0.5)
    seen = await session.count()
    expect(seen == 1, f"the second call saw {seen} effects of the first call")


@check(Rule.SEVERAL_CALLS)
async def concurrent_effects_all_count(client: CheckClient) -> None:
    """Eight calls at once, with one effect each and their own ids, have eight effects."""
    session = await client.open(client.subject(Kind.EFFECT, Kind.READ))
    await asyncio.gather(*(session.call(Kind.EFFECT) for _ in range(8)))
    await session.expect_count(8, "eight calls at once")
