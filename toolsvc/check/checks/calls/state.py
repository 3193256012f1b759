"""A session's state: later calls of the session see it, and other sessions do not."""

from __future__ import annotations

from toolsvc.check.check import check
from toolsvc.check.client import CheckClient
from toolsvc.check.probe import Kind
from toolsvc.check.types import Rule, expect


@check(Rule.SESSIONS)
async def state_lives_from_call_to_call(client: CheckClient) -> None:
    """Later calls of the session see what a call of a stateful tool did."""
    session = await client.open(client.subject(Kind.EFFECT, Kind.READ))
    for turn in range(3):
        session.turn = turn
        await session.call(Kind.EFFECT)
    await session.expect_count(3, "three calls with one effect each")


@check(Rule.SESSIONS)
async def sessions_see_nothing_of_each_other(client: CheckClient) -> None:
    """No other session sees what a call did."""
    subject = client.subject(Kind.EFFECT, Kind.READ)
    first, second = await client.open(subject), await client.open(subject)
    await first.call(Kind.EFFECT)
    await second.expect_count(0, "a session beside a session with an effect")


@check(Rule.SESSIONS, timed=True)
async def sessions_do_not_wait_for_each_other(client: CheckClient) -> None:
    """A sleeping call in one session does not delay another session."""
    subject = client.subject(Kind.SLEEP)
    first, second = await client.open(subject), await client.open(subject)
    sleeping = await first.asleep(1.5)
    await second.call()
    await first.expect_running(sleeping, "a call waited for a sleeping call of another session")


@check(Rule.DESCRIBE)
async def isolation_is_told(client: CheckClient) -> None:
    """Isolation is full, compat, per-session or none, or empty if no foreign code runs; session and
    result say the same."""
    subject = next((one for one in client.subjects if one.probe.foreign_code), None)
    session = await client.open(subject)
    level = session.opened.isolation
    known = {"full", "compat", "per-session", "none"}
    expect(set(level.split(",")) <= known | {""}, f"unknown isolation {level!r}")
    expect(level or subject is None, f"{session.subject.name} runs foreign code and names no level")
    found = (await session.call()).isolation
    expect(found in ("", level), f"the session's isolation is {level!r}, the result's {found!r}")
    expect(found or subject is None, "the result of foreign code names no isolation")
