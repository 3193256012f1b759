"""What calls leave behind: seen by later calls of the session, and by nobody else."""

from __future__ import annotations

from toolsvc.check.check import check
from toolsvc.check.client import CheckClient
from toolsvc.check.probe import Kind
from toolsvc.check.types import Rule, expect
from toolwright import wire
from toolwright.tool.v1 import tool_pb2 as pb


@check(Rule.SESSIONS)
async def state_lives_from_call_to_call(client: CheckClient) -> None:
    """What a call of a stateful tool did, later calls of the session see."""
    session = await client.open(client.subject(Kind.EFFECT, Kind.READ))
    for turn in range(3):
        session.turn = turn
        await session.call(Kind.EFFECT)
    await session.expect_count(3, "three calls with one effect each")


@check(Rule.SESSIONS)
async def sessions_see_nothing_of_each_other(client: CheckClient) -> None:
    """What a call did in one session, no other session sees."""
    subject = client.subject(Kind.EFFECT, Kind.READ)
    first, second = await client.open(subject), await client.open(subject)
    await first.call(Kind.EFFECT)
    await second.expect_count(0, "a session beside one with an effect")


@check(Rule.SESSIONS, timed=True)
async def sessions_do_not_wait_for_each_other(client: CheckClient) -> None:
    """A sleeping call in one session does not hold up another session."""
    subject = client.subject(Kind.SLEEP)
    first, second = await client.open(subject), await client.open(subject)
    sleeping = first.calling(Kind.SLEEP, seconds=1.5)
    await first.begin(sleeping)
    await second.call()
    answer = await first.send(_asking_now(sleeping))
    expect(answer.HasField("running"), "a call had to wait for a sleeping one of another session")


@check(Rule.DESCRIBE)
async def isolation_is_told(client: CheckClient) -> None:
    """Isolation is one of full, compat, per-session and none, or empty where no foreign code runs;
    session and result say the same."""
    subject = next((one for one in client.subjects if one.probe.foreign_code), None)
    session = await client.open(subject)
    level = session.opened.isolation
    known = {"full", "compat", "per-session", "none"}
    expect(set(level.split(",")) <= known | {""}, f"unknown isolation {level!r}")
    expect(level or subject is None, f"{session.subject.name} runs foreign code and names no level")
    found = (await session.call()).isolation
    expect(found in ("", level), f"the session's isolation is {level!r}, the result's {found!r}")
    expect(found or subject is None, "the result of foreign code names no isolation")


def _asking_now(request: pb.CallToolRequest) -> pb.CallToolRequest:
    asking = pb.CallToolRequest()
    asking.CopyFrom(request)
    asking.wait.CopyFrom(wire.duration(0))
    return asking
