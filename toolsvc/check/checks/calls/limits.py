"""Rule 3: a call past its queue limit never ran, and a call past its run limit was stopped."""

from __future__ import annotations

import asyncio

from toolsvc.check.check import check
from toolsvc.check.client import (
    CheckClient,
    CheckSession,
    expect_error,
    expect_success,
    refused,
)
from toolsvc.check.connection import Refusal
from toolsvc.check.probe import Kind
from toolsvc.check.types import Rule, expect
from toolwright import wire
from toolwright.tool.v1 import tool_pb2 as pb

NAP = 0.8
"""Length of a sleeping call, longer than the limits that must pass, in seconds."""
LONG_NAP = 3 * NAP
"""The same if a busy machine takes a second to start the call, in seconds."""


async def _busy(client: CheckClient) -> tuple[CheckSession, pb.CallToolRequest]:
    """A session in which a sleeping call makes other calls wait."""
    subject = client.subject(Kind.SLEEP, Kind.EFFECT, Kind.READ, parallel=False)
    session = await client.open(subject)
    return session, await session.asleep(NAP)


async def _past_its_limit(session: CheckSession) -> tuple[pb.CallToolRequest, Refusal]:
    """A call that was refused for its queue limit."""
    limit = wire.duration(session.client.seconds(0.1))
    queued = session.calling(Kind.EFFECT, queue_limit=limit)
    asking = session.result(queued)
    return queued, await refused(asking, "QUEUE_LIMIT", doing="a call past its queue limit")


@check(Rule.TWO_LIMITS, timed=True)
async def past_the_queue_limit_nothing_ran(client: CheckClient) -> None:
    """A call that did not start within its queue limit is RESOURCE_EXHAUSTED / QUEUE_LIMIT, and
    has no effect later."""
    session, sleeping = await _busy(client)
    await _past_its_limit(session)
    await session.result(sleeping)
    await session.expect_count(1, "a call past its queue limit, and the call before it")


@check(Rule.TWO_LIMITS, timed=True)
async def past_the_queue_limit_a_retry_is_invited(client: CheckClient) -> None:
    """QUEUE_LIMIT comes with RetryInfo: RESOURCE_EXHAUSTED alone may mean a large message."""
    session, _ = await _busy(client)
    _, refusal = await _past_its_limit(session)
    expect(refusal.retry_after is not None, "QUEUE_LIMIT came without RetryInfo")


@check(Rule.TWO_LIMITS, timed=True)
async def past_the_queue_limit_the_id_is_free(client: CheckClient) -> None:
    """A request that passed its queue limit runs when it is sent again."""
    session, sleeping = await _busy(client)
    queued, _ = await _past_its_limit(session)
    await session.result(sleeping)
    queued.queue_limit.CopyFrom(wire.duration(20))
    expect_success(await session.result(queued), "the retry")
    await session.expect_count(2, "a call sent again after its queue limit")


@check(Rule.TWO_LIMITS, timed=True)
async def past_the_run_limit_it_is_a_timeout(client: CheckClient) -> None:
    """A call past its run limit answers OK with the tool error TIMEOUT. If the tool has the
    capability `cancel`, the call has no effect."""
    session = await client.open(client.subject(Kind.SLEEP, Kind.EFFECT, Kind.READ))
    limit = wire.duration(client.seconds(0.2))
    result = await session.call(Kind.SLEEP, seconds=2 * NAP, run_limit=limit)
    expect_error(result, "TIMEOUT", "a call past its run limit")
    await client.sleep(2 * NAP)
    if session.subject.descriptor.capabilities.cancel and not result.error.session_lost:
        await session.expect_count(0, "a call past its run limit")


@check(Rule.TWO_LIMITS, timed=True)
async def a_timeout_is_recorded(client: CheckClient) -> None:
    """A call past its run limit answers the same TIMEOUT when it is repeated."""
    session = await client.open(client.subject(Kind.SLEEP))
    limit = wire.duration(client.seconds(0.2))
    request = session.calling(Kind.SLEEP, seconds=NAP, run_limit=limit)
    first = await session.result(request)
    expect_error(first, "TIMEOUT", "a call past its run limit")
    await session.expect_record(request, first, "a repeated TIMEOUT")


@check(Rule.TWO_LIMITS, timed=True)
async def the_queue_is_no_part_of_the_run(client: CheckClient) -> None:
    """Time in the queue does not count for the run limit."""
    session, _ = await _busy(client)
    limit = wire.duration(client.seconds(0.75 * NAP))
    result = await session.call(Kind.EFFECT, run_limit=limit)
    expect_success(result, "a short call that queued longer than its run limit")


@check(Rule.TWO_LIMITS, timed=True)
async def the_run_is_no_part_of_the_queue(client: CheckClient) -> None:
    """Time that a call runs does not count for its queue limit."""
    session = await client.open(client.subject(Kind.SLEEP))
    limit = wire.duration(client.seconds(0.75 * LONG_NAP))
    try:
        result = await session.call(Kind.SLEEP, seconds=LONG_NAP, queue_limit=limit)
    except Refusal as refusal:
        expect(refusal.reason != "QUEUE_LIMIT", "the queue limit ended a running call")
        raise
    expect_success(result, "a sleeping call")


@check(Rule.TWO_LIMITS, timed=True)
async def times_are_told_apart(client: CheckClient) -> None:
    """A result says how long its call queued and how long it ran."""
    session, sleeping = await _busy(client)
    behind = session.calling(Kind.EFFECT)
    first, second = await asyncio.gather(session.result(sleeping), session.result(behind))
    # Half of the sleep: clocks and schedulers differ, but an empty field does not pass.
    least = client.seconds(NAP / 2)
    ran, queued = first.run.ToNanoseconds() / 1e9, second.queued.ToNanoseconds() / 1e9
    expect(ran >= least, f"a call that slept {2 * least:g} s says that it ran {ran:.3f} s")
    expect(queued > 0, "a call that waited for another call says that it did not queue")
    ran = second.run.ToNanoseconds() / 1e9
    expect(ran < queued, f"a short call after a long call: queued {queued:.3f} s, ran {ran:.3f} s")
