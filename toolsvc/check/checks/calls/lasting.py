"""What holds goes on holding: records, refusals, cancellations and ends do not turn with time.

Each of these waits for `LATER`, longer than a service keeps what it means to keep for a moment, and
longer than work that was stopped would have taken. They wait side by side.
"""

from __future__ import annotations

from toolsvc.check.check import check
from toolsvc.check.client import CheckClient, CheckSession, error_kind, refused
from toolsvc.check.connection import Refusal
from toolsvc.check.probe import Kind
from toolsvc.check.subject import Subject
from toolsvc.check.types import GONE, Rule, Skipped, expect
from toolwright import wire
from toolwright.tool.v1 import tool_pb2 as pb

LATER = 11.0
"""Seconds."""
NAP = 3.0
"""Of a call that is stopped before it ends, seconds."""


async def _open(client: CheckClient, subject: Subject | None = None) -> CheckSession:
    """A session that its lease does not end meanwhile."""
    return await client.open(subject, lease=wire.duration(client.seconds(6 * LATER)))


@check(Rule.SAME_ANSWER, patient=True)
async def a_record_lasts(client: CheckClient) -> None:
    """A result of the newest turn, asked for again eleven seconds later, is the recorded one."""
    session = await _open(client)
    request = session.calling()
    recorded = await session.result(request)
    await client.sleep(LATER)
    expect(await session.result(request) == recorded, "a record was another one after a while")


@check(Rule.SAME_ANSWER, patient=True)
async def what_ran_has_run_for_good(client: CheckClient) -> None:
    """Eleven seconds later an acknowledged call still does not run again, nor does its id with
    another request."""
    session = await _open(client, client.subject(Kind.EFFECT, Kind.READ))
    old, newest = session.calling(Kind.EFFECT, turn=0), session.calling(Kind.EFFECT, turn=1)
    for request in (old, newest):
        await session.result(request)
    await client.sleep(LATER)
    session.turn = 1
    other = pb.CallToolRequest()
    other.CopyFrom(old)
    other.turn = 1
    await refused(
        session.send(other), "CALL_ID_REUSED", "RESULT_FORGOTTEN", doing="an acknowledged call_id"
    )
    for request in (old, newest):
        try:
            await session.result(request)
        except Refusal as refusal:
            expect(refusal.reason == "RESULT_FORGOTTEN", f"a call asked for later: {refusal}")
    await session.expect_count(2, "two calls, asked for again after a while")


@check(Rule.CANCEL, patient=True)
async def a_cancelled_call_has_no_late_effect(client: CheckClient) -> None:
    """Eleven seconds after CancelCall the record is the same CANCELLED, and nothing has
    happened."""
    subject = client.subject(Kind.SLEEP, Kind.EFFECT, Kind.READ)
    if not subject.descriptor.capabilities.cancel:
        raise Skipped(f"{subject.name} does not have the capability `cancel`")
    session = await _open(client, subject)
    request = session.calling(Kind.SLEEP, seconds=NAP)
    await session.begin(request)
    await session.cancel(request.call_id)
    await _expect_nothing_more(session, request, await session.result(request), "CANCELLED")


@check(Rule.TWO_LIMITS, patient=True)
async def a_stopped_call_has_no_late_effect(client: CheckClient) -> None:
    """Eleven seconds after a call passed its run limit the record is the same TIMEOUT, and where
    the tool has the capability `cancel`, nothing has happened."""
    session = await _open(client, client.subject(Kind.SLEEP, Kind.EFFECT, Kind.READ))
    limit = wire.duration(client.seconds(0.2))
    request = session.calling(Kind.SLEEP, seconds=NAP, run_limit=limit)
    await _expect_nothing_more(session, request, await session.result(request), "TIMEOUT")


async def _expect_nothing_more(
    session: CheckSession, request: pb.CallToolRequest, recorded: pb.CallResult, kind: str
) -> None:
    """That a call which was stopped stays so."""
    found = error_kind(recorded)
    expect(found == kind, f"a call that was stopped answered {found or 'no error'}, not {kind}")
    await session.client.sleep(LATER)
    expect(await session.result(request) == recorded, f"a recorded {kind} has turned with time")
    if session.subject.descriptor.capabilities.cancel and not recorded.error.session_lost:
        await session.expect_count(0, f"a call that answered {kind}, after a while")


@check(Rule.TWO_LIMITS, patient=True)
async def a_refused_call_has_no_late_effect(client: CheckClient) -> None:
    """Eleven seconds after it was refused for its queue limit, a call has not run."""
    subject = client.subject(Kind.SLEEP, Kind.EFFECT, Kind.READ, parallel=False)
    session = await _open(client, subject)
    sleeping = session.calling(Kind.SLEEP, seconds=NAP)
    await session.begin(sleeping)
    queued = session.calling(Kind.EFFECT, queue_limit=wire.duration(client.seconds(0.1)))
    await refused(session.result(queued), "QUEUE_LIMIT", doing="a call past its queue limit")
    await client.sleep(LATER)
    await session.result(sleeping)
    await session.expect_count(1, "a call that was refused, and the one before it")


@check(Rule.SESSIONS, patient=True)
async def a_closed_session_stays_closed(client: CheckClient) -> None:
    """Eleven seconds after CloseSession the session's calls are refused, and its owner does not
    hold it."""
    session = await _open(client)
    request = session.calling()
    await session.result(request)
    await session.close()
    await client.sleep(LATER)
    await refused(session.send(request), *GONE, doing="a known call in a closed session")
    leases = await client.renew(session, session.id)
    expect(list(leases.lost) == [session.id], "a session that was closed is held after a while")
