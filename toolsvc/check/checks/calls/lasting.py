"""Records, refusals, cancellations and closed sessions stay as they are.

Each check waits for `LATER`. That is longer than a short-lived cache, and longer than stopped work
would have taken. All these checks wait at the same time.
"""

from __future__ import annotations

from toolsvc.check.check import check
from toolsvc.check.client import CheckClient, CheckSession, changed, expect_error, refused
from toolsvc.check.connection import Refusal
from toolsvc.check.probe import Kind
from toolsvc.check.subject import Subject
from toolsvc.check.types import GONE, TAKEN, Rule, expect
from toolwright import wire
from toolwright.tool.v1 import tool_pb2 as pb

LATER = 11.0
"""The wait, in seconds."""
NAP = 3.0
"""Length of a call that is stopped before it ends, in seconds."""


async def _open(client: CheckClient, subject: Subject | None = None) -> CheckSession:
    """A session whose lease outlasts the wait."""
    return await client.open(subject, lease=wire.duration(client.seconds(6 * LATER)))


@check(Rule.SAME_ANSWER, patient=True)
async def a_record_lasts(client: CheckClient) -> None:
    """A call of the newest turn answers its record eleven seconds later."""
    session = await _open(client)
    request = session.calling()
    recorded = await session.result(request)
    await client.sleep(LATER)
    await session.expect_record(request, recorded, "a record after a while")


@check(Rule.SAME_ANSWER, patient=True)
async def what_ran_has_run_for_good(client: CheckClient) -> None:
    """Eleven seconds later neither an acknowledged call nor another request with its id runs."""
    session = await _open(client, client.subject(Kind.EFFECT, Kind.READ))
    old, newest = session.calling(Kind.EFFECT, turn=0), session.calling(Kind.EFFECT, turn=1)
    for request in (old, newest):
        await session.result(request)
    await client.sleep(LATER)
    session.turn = 1
    await refused(session.send(changed(old, turn=1)), *TAKEN, doing="an acknowledged call_id")
    for request in (old, newest):
        try:
            await session.result(request)
        except Refusal as refusal:
            expect(refusal.reason == "RESULT_FORGOTTEN", f"a call repeated later: {refusal}")
    await session.expect_count(2, "two calls, repeated after a while")


@check(Rule.CANCEL, patient=True)
async def a_cancelled_call_has_no_late_effect(client: CheckClient) -> None:
    """Eleven seconds after CancelCall the record is the same CANCELLED, without an effect."""
    subject = client.subject(Kind.SLEEP, Kind.EFFECT, Kind.READ, can="cancel")
    session = await _open(client, subject)
    request = await session.asleep(NAP)
    await session.cancel(request.call_id)
    await _expect_nothing_more(session, request, await session.result(request), "CANCELLED")


@check(Rule.TWO_LIMITS, patient=True)
async def a_stopped_call_has_no_late_effect(client: CheckClient) -> None:
    """Eleven seconds after a call passed its run limit the record is the same TIMEOUT. If the tool
    has the capability `cancel`, the call has no effect."""
    session = await _open(client, client.subject(Kind.SLEEP, Kind.EFFECT, Kind.READ))
    limit = wire.duration(client.seconds(0.2))
    request = session.calling(Kind.SLEEP, seconds=NAP, run_limit=limit)
    await _expect_nothing_more(session, request, await session.result(request), "TIMEOUT")


async def _expect_nothing_more(
    session: CheckSession, request: pb.CallToolRequest, recorded: pb.CallResult, kind: str
) -> None:
    expect_error(recorded, kind, "a stopped call")
    await session.client.sleep(LATER)
    await session.expect_record(request, recorded, f"a recorded {kind} after a while")
    if session.subject.descriptor.capabilities.cancel and not recorded.error.session_lost:
        await session.expect_count(0, f"a call that answered {kind}, after a while")


@check(Rule.TWO_LIMITS, patient=True)
async def a_refused_call_has_no_late_effect(client: CheckClient) -> None:
    """Eleven seconds after a call was refused for its queue limit, it has not run."""
    subject = client.subject(Kind.SLEEP, Kind.EFFECT, Kind.READ, parallel=False)
    session = await _open(client, subject)
    sleeping = await session.asleep(NAP)
    queued = session.calling(Kind.EFFECT, queue_limit=wire.duration(client.seconds(0.1)))
    await refused(session.result(queued), "QUEUE_LIMIT", doing="a call past its queue limit")
    await client.sleep(LATER)
    await session.result(sleeping)
    await session.expect_count(1, "a refused call, and the call before it")


@check(Rule.SESSIONS, patient=True)
async def a_closed_session_stays_closed(client: CheckClient) -> None:
    """Eleven seconds after CloseSession the session's calls are refused, and RenewLeases does not
    hold it."""
    session = await _open(client)
    request = session.calling()
    await session.result(request)
    await session.close()
    await client.sleep(LATER)
    await refused(session.send(request), *GONE, doing="a known call in a closed session")
    leases = await client.renew(session, session.id)
    expect(list(leases.lost) == [session.id], "a closed session is held after a while")
