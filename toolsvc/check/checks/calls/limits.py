"""Rule 3: past the queue limit nothing ran, past the run limit the tool was stopped."""

from __future__ import annotations

import asyncio

from toolsvc.check.check import check
from toolsvc.check.client import CheckClient, CheckSession, error_kind, refused
from toolsvc.check.connection import Refusal
from toolsvc.check.probe import Kind
from toolsvc.check.types import Rule, expect
from toolwright import wire
from toolwright.tool.v1 import tool_pb2 as pb

NAP = 0.8
"""Longer than the limits that are to pass meanwhile, seconds."""
LONG_NAP = 3 * NAP
"""The same where a busy machine may take a second to start the call, seconds."""


async def _busy(client: CheckClient) -> tuple[CheckSession, pb.CallToolRequest]:
    """A session whose only place is taken by a sleeping call."""
    subject = client.subject(Kind.SLEEP, Kind.EFFECT, Kind.READ, parallel=False)
    session = await client.open(subject)
    sleeping = session.calling(Kind.SLEEP, seconds=NAP)
    await session.begin(sleeping)
    return session, sleeping


@check(Rule.TWO_LIMITS, timed=True)
async def past_the_queue_limit_nothing_ran(client: CheckClient) -> None:
    """A call that did not start within its queue limit is RESOURCE_EXHAUSTED / QUEUE_LIMIT, and
    has no effect later."""
    session, sleeping = await _busy(client)
    queued = session.calling(Kind.EFFECT, queue_limit=wire.duration(client.seconds(0.1)))
    await refused(session.result(queued), "QUEUE_LIMIT", doing="a call past its queue limit")
    await session.result(sleeping)
    await session.expect_count(1, "a call past its queue limit, and the one before it")


@check(Rule.TWO_LIMITS, timed=True)
async def past_the_queue_limit_a_retry_is_invited(client: CheckClient) -> None:
    """QUEUE_LIMIT comes with RetryInfo, for RESOURCE_EXHAUSTED alone may mean a large message."""
    session, _ = await _busy(client)
    queued = session.calling(Kind.EFFECT, queue_limit=wire.duration(client.seconds(0.1)))
    refusal = await refused(
        session.result(queued), "QUEUE_LIMIT", doing="a call past its queue limit"
    )
    expect(refusal.retry_after is not None, "QUEUE_LIMIT came without RetryInfo")


@check(Rule.TWO_LIMITS, timed=True)
async def past_the_queue_limit_the_id_is_free(client: CheckClient) -> None:
    """The same request that passed its queue limit runs when it is sent again."""
    session, sleeping = await _busy(client)
    queued = session.calling(Kind.EFFECT, queue_limit=wire.duration(client.seconds(0.1)))
    await refused(session.result(queued), "QUEUE_LIMIT", doing="a call past its queue limit")
    await session.result(sleeping)
    queued.queue_limit.CopyFrom(wire.duration(20))
    result = await session.result(queued)
    expect(not result.HasField("error"), f"the retry answered {error_kind(result)}")
    await session.expect_count(2, "a call sent again after its queue limit")


@check(Rule.TWO_LIMITS, timed=True)
async def past_the_run_limit_it_is_a_timeout(client: CheckClient) -> None:
    """A call that runs past its run limit answers OK with the tool error TIMEOUT; where the tool
    has the capability `cancel`, what it would have done at its end does not happen."""
    session = await client.open(client.subject(Kind.SLEEP, Kind.EFFECT, Kind.READ))
    limit = wire.duration(client.seconds(0.2))
    result = await session.call(Kind.SLEEP, seconds=2 * NAP, run_limit=limit)
    kind = error_kind(result)
    expect(kind == "TIMEOUT", f"a call past its run limit answered {kind or 'no error'}")
    await client.sleep(2 * NAP)
    if session.subject.descriptor.capabilities.cancel and not result.error.session_lost:
        await session.expect_count(0, "a call that was stopped at its run limit")


@check(Rule.TWO_LIMITS, timed=True)
async def a_timeout_is_recorded(client: CheckClient) -> None:
    """A call that was stopped at its run limit answers the same TIMEOUT when it is asked again."""
    session = await client.open(client.subject(Kind.SLEEP))
    limit = wire.duration(client.seconds(0.2))
    request = session.calling(Kind.SLEEP, seconds=NAP, run_limit=limit)
    first = await session.result(request)
    expect(error_kind(first) == "TIMEOUT", f"past the run limit: {error_kind(first) or 'no error'}")
    expect(await session.result(request) == first, "a TIMEOUT asked again was another answer")


@check(Rule.TWO_LIMITS, timed=True)
async def the_queue_is_no_part_of_the_run(client: CheckClient) -> None:
    """Time in the queue does not count into the run limit."""
    session, _ = await _busy(client)
    limit = wire.duration(client.seconds(0.75 * NAP))
    result = await session.call(Kind.EFFECT, run_limit=limit)
    expect(
        not result.HasField("error"),
        f"a short call that queued longer than its run limit answered {error_kind(result)}",
    )


@check(Rule.TWO_LIMITS, timed=True)
async def the_run_is_no_part_of_the_queue(client: CheckClient) -> None:
    """Time that a call runs does not count into its queue limit."""
    session = await client.open(client.subject(Kind.SLEEP))
    limit = wire.duration(client.seconds(0.75 * LONG_NAP))
    try:
        result = await session.call(Kind.SLEEP, seconds=LONG_NAP, queue_limit=limit)
    except Refusal as refusal:
        expect(refusal.reason != "QUEUE_LIMIT", "a running call was ended by its queue limit")
        raise
    expect(not result.HasField("error"), f"a sleeping call answered {error_kind(result)}")


@check(Rule.TWO_LIMITS, timed=True)
async def times_are_told_apart(client: CheckClient) -> None:
    """A result tells how long its call queued and how long it ran."""
    session, sleeping = await _busy(client)
    behind = session.calling(Kind.EFFECT)
    first, second = await asyncio.gather(session.result(sleeping), session.result(behind))
    # Half of what was slept: clocks and schedulers differ, a field left empty does not pass.
    least = client.seconds(NAP / 2)
    ran, queued = first.run.ToNanoseconds() / 1e9, second.queued.ToNanoseconds() / 1e9
    expect(ran >= least, f"a call that slept {2 * least:g} s says that it ran {ran:.3f} s")
    expect(queued > 0, "a call that waited for another says that it did not queue")
    ran = second.run.ToNanoseconds() / 1e9
    expect(ran < queued, f"a short call behind a long one: queued {queued:.3f} s, ran {ran:.3f} s")
