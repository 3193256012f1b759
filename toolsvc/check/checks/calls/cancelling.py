"""CancelCall stops a call, wherever it is, and the record says so."""

from __future__ import annotations

from toolsvc.check.check import check
from toolsvc.check.client import CheckClient, CheckSession, error_kind, refused
from toolsvc.check.connection import Refusal, ask
from toolsvc.check.probe import Kind
from toolsvc.check.subject import Subject
from toolsvc.check.types import Rule, Skipped, expect
from toolwright.tool.v1 import tool_pb2 as pb

NAP = 1.2


def _stoppable(client: CheckClient, *kinds: Kind) -> Subject:
    subject = client.subject(*kinds)
    if not subject.descriptor.capabilities.cancel:
        raise Skipped(f"{subject.name} does not have the capability `cancel`")
    return subject


@check(Rule.CANCEL, timed=True)
async def a_cancelled_call_is_stopped(client: CheckClient) -> None:
    """CancelCall says `cancelled`, the call answers CANCELLED, and what it would have done at its
    end does not happen."""
    session = await client.open(_stoppable(client, Kind.SLEEP, Kind.EFFECT, Kind.READ))
    request = session.calling(Kind.SLEEP, seconds=NAP)
    await session.begin(request)
    expect(await session.cancel(request.call_id), "CancelCall of a call in flight cancelled none")
    result = await session.result(request)
    kind = error_kind(result)
    expect(kind == "CANCELLED", f"a cancelled call answered {kind or 'a result without an error'}")
    await client.sleep(NAP)
    if not result.error.session_lost:
        await session.expect_count(0, "a call that was cancelled")


@check(Rule.CANCEL, timed=True)
async def a_cancellation_is_recorded(client: CheckClient) -> None:
    """A cancelled call, asked again, answers the same CANCELLED."""
    session = await client.open(_stoppable(client, Kind.SLEEP))
    request = session.calling(Kind.SLEEP, seconds=NAP)
    await session.begin(request)
    await session.cancel(request.call_id)
    first = await session.result(request)
    expect(error_kind(first) == "CANCELLED", f"it answered {error_kind(first) or 'no error'}")
    expect(await session.result(request) == first, "asked again it was another answer")


@check(Rule.CANCEL, timed=True)
async def cancelling_is_idempotent(client: CheckClient) -> None:
    """CancelCall of a call that is cancelled already is OK and changes nothing."""
    session = await client.open(_stoppable(client, Kind.SLEEP))
    request = session.calling(Kind.SLEEP, seconds=NAP)
    await session.begin(request)
    await session.cancel(request.call_id)
    result = await session.result(request)
    expect(not await session.cancel(request.call_id), "a cancelled call was cancelled again")
    expect(await session.result(request) == result, "cancelling twice changed the record")


@check(Rule.CANCEL)
async def a_finished_call_stays_finished(client: CheckClient) -> None:
    """CancelCall of a call that has ended says that it cancelled none, and its result stands."""
    session = await client.open()
    request = session.calling()
    result = await session.result(request)
    expect(not await session.cancel(request.call_id), "CancelCall cancelled a call that had ended")
    expect(await session.result(request) == result, "CancelCall changed a recorded result")


@check(Rule.CANCEL)
async def cancelling_the_unknown_is_fine(client: CheckClient) -> None:
    """CancelCall of a call that was never made is OK and cancels none; the id stays free."""
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
    """A call that waits for another answers CANCELLED at once when it is cancelled, and never
    runs."""
    subject = client.subject(Kind.SLEEP, Kind.EFFECT, Kind.READ, parallel=False)
    session = await client.open(subject)
    sleeping = session.calling(Kind.SLEEP, seconds=NAP)
    await session.begin(sleeping)
    queued = session.calling(Kind.EFFECT)
    queued_now = pb.CallToolRequest()
    queued_now.CopyFrom(queued)
    queued_now.wait.Clear()
    queued_now.wait.SetInParent()
    answer = await session.send(queued_now)
    expect(answer.HasField("running"), "a call behind a sleeping one had its result at once")
    await session.cancel(queued.call_id)
    kind = error_kind(await session.result(queued))
    expect(kind == "CANCELLED", f"a call cancelled in the queue answered {kind or 'no error'}")
    await session.result(sleeping)
    await session.expect_count(1, "a call cancelled in the queue, and the one before it")


@check(Rule.CANCEL, timed=True)
async def a_session_outlives_a_cancelled_call(client: CheckClient) -> None:
    """After a cancelled call the session serves the next one, unless the result said that the
    session is lost."""
    session: CheckSession = await client.open(_stoppable(client, Kind.SLEEP))
    request = session.calling(Kind.SLEEP, seconds=NAP)
    await session.begin(request)
    await session.cancel(request.call_id)
    result = await session.result(request)
    try:
        await session.call()
    except Refusal as refusal:
        expect(
            result.error.session_lost and refusal.reason == "SESSION_LOST",
            f"after a cancelled call that did not lose the session: {refusal}",
        )
