"""CancelCall stops a call, queued or running, and the record says so."""

from __future__ import annotations

from toolsvc.check.check import check
from toolsvc.check.client import CheckClient, error_kind, expect_error, refused
from toolsvc.check.connection import Refusal, ask
from toolsvc.check.probe import Kind
from toolsvc.check.types import Rule, expect
from toolwright.tool.v1 import tool_pb2 as pb

NAP = 1.2
"""Length of a sleeping call, in seconds."""


@check(Rule.CANCEL, timed=True)
async def a_cancelled_call_is_stopped(client: CheckClient) -> None:
    """CancelCall says `cancelled`, the call answers CANCELLED, and its effect does not happen."""
    subject = client.subject(Kind.SLEEP, Kind.EFFECT, Kind.READ, can="cancel")
    session = await client.open(subject)
    request = await session.asleep(NAP)
    expect(await session.cancel(request.call_id), "CancelCall did not cancel a call in flight")
    result = await session.result(request)
    expect_error(result, "CANCELLED", "a cancelled call")
    await client.sleep(NAP)
    if not result.error.session_lost:
        await session.expect_count(0, "a cancelled call")


@check(Rule.CANCEL, timed=True)
async def a_cancellation_is_recorded(client: CheckClient) -> None:
    """A cancelled call answers the same CANCELLED when it is repeated."""
    session = await client.open(client.subject(Kind.SLEEP, can="cancel"))
    request = await session.asleep(NAP)
    await session.cancel(request.call_id)
    first = await session.result(request)
    expect_error(first, "CANCELLED", "a cancelled call")
    await session.expect_record(request, first, "a repeated cancelled call")


@check(Rule.CANCEL, timed=True)
async def cancelling_is_idempotent(client: CheckClient) -> None:
    """CancelCall of a cancelled call is OK and changes nothing."""
    session = await client.open(client.subject(Kind.SLEEP, can="cancel"))
    request = await session.asleep(NAP)
    await session.cancel(request.call_id)
    result = await session.result(request)
    expect(not await session.cancel(request.call_id), "a cancelled call was cancelled again")
    await session.expect_record(request, result, "a call after a second CancelCall")


@check(Rule.CANCEL)
async def a_finished_call_stays_finished(client: CheckClient) -> None:
    """CancelCall of a finished call cancels nothing, and the call's result stays."""
    session = await client.open()
    request = session.calling()
    result = await session.result(request)
    expect(not await session.cancel(request.call_id), "CancelCall cancelled a finished call")
    await session.expect_record(request, result, "a finished call after CancelCall")


@check(Rule.CANCEL)
async def cancelling_the_unknown_is_fine(client: CheckClient) -> None:
    """CancelCall of a call that was never made is OK and cancels nothing; the id stays free."""
    session = await client.open()
    request = session.calling()
    expect(not await session.cancel(request.call_id), "CancelCall cancelled a call never made")
    result = await session.result(request)
    expect(error_kind(result) != "CANCELLED", "a call was cancelled before it was made")


@check(Rule.CANCEL)
async def cancelling_in_no_session_is_refused(client: CheckClient) -> None:
    """CancelCall in a session that was never opened is refused with SESSION_NOT_FOUND."""
    request = pb.CancelCallRequest(session_id=f"{client.owner}/never-opened", call_id="1")
    asking = ask(client.stub.CancelCall, request)
    await refused(asking, "SESSION_NOT_FOUND", doing="CancelCall in an unknown session")


@check(Rule.CANCEL, timed=True)
async def a_queued_call_can_be_cancelled(client: CheckClient) -> None:
    """A call that waits for another call answers CANCELLED when it is cancelled, and never runs."""
    subject = client.subject(Kind.SLEEP, Kind.EFFECT, Kind.READ, parallel=False)
    session = await client.open(subject)
    sleeping = await session.asleep(NAP)
    queued = session.calling(Kind.EFFECT)
    await session.expect_running(queued, "a queued call had its result at once")
    await session.cancel(queued.call_id)
    expect_error(await session.result(queued), "CANCELLED", "a call cancelled in the queue")
    await session.result(sleeping)
    await session.expect_count(1, "a call cancelled in the queue, and the call before it")


@check(Rule.CANCEL, timed=True)
async def a_session_outlives_a_cancelled_call(client: CheckClient) -> None:
    """After a cancelled call the session serves the next call, unless the result said that the
    session is lost."""
    session = await client.open(client.subject(Kind.SLEEP, can="cancel"))
    request = await session.asleep(NAP)
    await session.cancel(request.call_id)
    result = await session.result(request)
    try:
        await session.call()
    except Refusal as refusal:
        expect(
            result.error.session_lost and refusal.reason == "SESSION_LOST",
            f"after a cancelled call that did not lose the session: {refusal}",
        )
