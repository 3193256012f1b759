"""`wait` and the RPC's deadline bound the answer, and never the call."""

from __future__ import annotations

from typing import Any

import grpc

from toolsvc.check.check import check
from toolsvc.check.client import CheckClient, CheckSession, expect_success, refused
from toolsvc.check.connection import Refusal, ask
from toolsvc.check.probe import Kind
from toolsvc.check.types import CheckFailed, Rule, expect
from toolwright import wire

NAP = 1.0
"""Length of a sleeping call, in seconds."""


@check(Rule.DEADLINE, timed=True)
async def after_wait_the_answer_is_running(client: CheckClient) -> None:
    """An unfinished call answers `running` after `wait`, and its result when it is repeated."""
    session = await client.open(client.subject(Kind.SLEEP))
    request = session.calling(Kind.SLEEP, seconds=NAP, wait=wire.duration(client.seconds(0.1)))
    answer = await session.send(request)
    expect(answer.HasField("running"), "a call that sleeps longer than `wait` answered a result")
    expect_success(await session.result(request), "a repeated call")


@check(Rule.DEADLINE, timed=True)
async def a_wait_of_nothing_answers_at_once(client: CheckClient) -> None:
    """A `wait` of 0 gets an answer at once: `running` while the call sleeps."""
    session = await client.open(client.subject(Kind.SLEEP))
    request = session.calling(Kind.SLEEP, seconds=NAP)
    await session.expect_running(request, "a `wait` of 0 held the answer until the call's result")


@check(Rule.DEADLINE, timed=True)
async def a_result_does_not_wait(client: CheckClient) -> None:
    """A result is answered when it is ready, before `wait` is over."""
    session = await client.open()
    await session.call()
    request = session.calling(wait=wire.duration(25))
    try:
        answer = await session.send(request, seconds=client.seconds(4))
    except Refusal as refusal:
        if refusal.code is grpc.StatusCode.DEADLINE_EXCEEDED:
            raise CheckFailed("a short call held its answer until `wait` was over") from None
        raise
    expect(answer.HasField("result"), "a short call answered `running` before `wait` was over")


@check(Rule.DEADLINE, timed=True)
async def running_tells_its_times(client: CheckClient) -> None:
    """`running` says how long the call has been running, and the time grows."""
    session = await client.open(client.subject(Kind.SLEEP))
    request = session.calling(Kind.SLEEP, seconds=NAP, wait=wire.duration(client.seconds(0.2)))
    times = []
    for _ in range(2):
        answer = await session.send(request)
        expect(answer.HasField("running"), "a call that sleeps longer than `wait` has a result")
        running = answer.running
        times.append(running.queued.ToNanoseconds() + running.run.ToNanoseconds())
    expect(0 < times[0] < times[1], f"`running` said {times[0]} ns, and later {times[1]} ns")


@check(Rule.DEADLINE, timed=True)
async def a_deadline_stops_nothing(client: CheckClient) -> None:
    """A call continues when its RPC's deadline passes, and a repeated request gets its result."""
    session = await client.open(client.subject(Kind.SLEEP, Kind.EFFECT, Kind.READ))
    request = session.calling(Kind.SLEEP, seconds=NAP)
    await _passes_its_deadline(session, request)
    expect_success(await session.result(request), "a repeated call")
    await session.expect_count(1, "a call whose RPC passed its deadline")


@check(Rule.DEADLINE, timed=True)
async def a_deadline_needs_nobody_who_asks_again(client: CheckClient) -> None:
    """A call whose RPC passed its deadline has its effect without a repeated request."""
    session = await client.open(client.subject(Kind.SLEEP, Kind.EFFECT, Kind.READ))
    await _passes_its_deadline(session, session.calling(Kind.SLEEP, seconds=NAP))
    await client.sleep(NAP)
    await session.expect_count(1, "a call that was never repeated")


@check(Rule.DEADLINE)
async def an_opening_survives_its_deadline(client: CheckClient) -> None:
    """OpenSession whose RPC passed its deadline, early or late, and was repeated is one session
    that works."""
    request = client.opening(client.subject())
    for seconds in (0.001, 0.005, 0.02, 0.1):
        try:
            await ask(client.stub.OpenSession, request, seconds=seconds)
        except Refusal as refusal:
            expect(
                refusal.code is grpc.StatusCode.DEADLINE_EXCEEDED,
                f"a repeated OpenSession: {refusal}",
            )
    opened = await client.send_opening(request)
    session = CheckSession(client, client.subject(), request, opened)
    await session.call()
    leases = await client.renew(session)
    expect(list(leases.held) == [session.id], f"{len(leases.held)} sessions of one opening")


@check(Rule.DEADLINE)
async def a_negative_time_is_refused(client: CheckClient) -> None:
    """A negative lease, limit or wait is INVALID_REQUEST, and nothing runs."""
    session = await client.open()
    below = wire.duration(-1)
    for field in ("queue_limit", "run_limit", "wait"):
        limit: dict[str, Any] = {field: below}
        request = session.calling(**limit)
        await refused(session.send(request), "INVALID_REQUEST", doing=f"a negative {field}")
    opening = client.opening(client.subject(), lease=below)
    await refused(client.send_opening(opening), "INVALID_REQUEST", doing="a negative lease")


async def _passes_its_deadline(session: CheckSession, request: object) -> None:
    seconds = session.client.seconds(0.3)
    try:
        await ask(session.stub.CallTool, request, seconds=seconds)
    except Refusal as refusal:
        expect(
            refusal.code is grpc.StatusCode.DEADLINE_EXCEEDED,
            f"an RPC with a short deadline ended in {refusal.code.name}",
        )
        return
    raise CheckFailed("a call that sleeps longer than its RPC's deadline was answered")
