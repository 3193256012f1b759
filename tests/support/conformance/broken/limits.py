"""Rule 3, deadlines and cancellation, broken."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.support.conformance.broken.registry import broken
from tests.support.conformance.reference import Call, Reference, ReferenceSession, refusal
from tests.support.conformance.reference.tools import RUN, failed
from toolsvc.check.types import Rule
from toolwright.common.v1 import reasons_pb2 as reasons
from toolwright.rpc.errors import ServiceError, answers_errors
from toolwright.tool.v1 import tool_pb2 as pb
from toolwright.types import ToolErrorKind


@broken(Rule.TWO_LIMITS, "past-the-queue-limit-nothing-ran")
class RunsAfterAll(Reference):
    """Refuses a call that waited too long, and runs it later all the same."""

    def __init__(self) -> None:
        super().__init__()
        self.later: set[asyncio.Task[pb.CallResult]] = set()

    async def perform(self, session: ReferenceSession, call: Call) -> pb.CallResult:
        try:
            return await super().perform(session, call)
        except ServiceError as error:
            if error.reason == reasons.ERROR_REASON_QUEUE_LIMIT:
                call.queue_limit = call.run_limit = 60.0
                self.later.add(asyncio.create_task(super().perform(session, call)))
            raise


@broken(
    Rule.TWO_LIMITS,
    "past-the-queue-limit-nothing-ran",
    "past-the-queue-limit-a-retry-is-invited",
    "past-the-queue-limit-the-id-is-free",
)
class QueueingIsATimeout(Reference):
    """Shows the policy that a call waited too long."""

    async def perform(self, *given: Any) -> pb.CallResult:
        try:
            return await super().perform(*given)
        except ServiceError as error:
            if error.reason != reasons.ERROR_REASON_QUEUE_LIMIT:
                raise
            return failed(ToolErrorKind.TIMEOUT, error.message)


@broken(Rule.TWO_LIMITS, "past-the-queue-limit-a-retry-is-invited")
class WithoutRetryInfo(Reference):
    """Does not say that a retry may help."""

    async def queue(self, turnstile: asyncio.Lock, limit: float, call_id: str) -> None:
        try:
            await super().queue(turnstile, limit, call_id)
        except ServiceError as error:
            raise refusal(error.reason, error.message, error.subject) from error


@broken(Rule.TWO_LIMITS, "past-the-run-limit-it-is-a-timeout", "a-timeout-is-recorded")
class NoRunLimit(Reference):
    """Lets a tool run as long as it likes."""

    async def run(
        self, session: ReferenceSession, tool: pb.ToolDescriptor, arguments: Any, limit: float
    ) -> pb.CallResult:
        return await super().run(session, tool, arguments, 3600.0)


@broken(Rule.TWO_LIMITS, "past-the-run-limit-it-is-a-timeout")
class RunsOn(Reference):
    """Says TIMEOUT, and lets the tool run on."""

    async def run(
        self, session: ReferenceSession, tool: pb.ToolDescriptor, arguments: Any, limit: float
    ) -> pb.CallResult:
        work = asyncio.ensure_future(RUN[tool.name](session.state, arguments))
        await asyncio.wait((work,), timeout=limit)
        if work.done():
            return await super().run(session, tool, dict(arguments, after=0), limit)
        return failed(ToolErrorKind.TIMEOUT, "stopped")


@broken(Rule.TWO_LIMITS, "the-queue-is-no-part-of-the-run")
class QueueCountsAsRun(Reference):
    """Counts the time in the queue into the run limit."""

    async def perform(self, session: ReferenceSession, call: Call) -> pb.CallResult:
        try:
            async with asyncio.timeout(call.run_limit):
                return await super().perform(session, call)
        except TimeoutError:
            return failed(ToolErrorKind.TIMEOUT, "queued and ran too long")


@broken(Rule.TWO_LIMITS, "the-run-is-no-part-of-the-queue")
class RunCountsAsQueue(Reference):
    """Counts the time that a call runs into the queue limit."""

    async def perform(self, session: ReferenceSession, call: Call) -> pb.CallResult:
        try:
            async with asyncio.timeout(call.queue_limit):
                return await super().perform(session, call)
        except TimeoutError:
            raise refusal(
                reasons.ERROR_REASON_QUEUE_LIMIT, "too long", call.request.call_id, retry_after=0.1
            ) from None


@broken(Rule.TWO_LIMITS, "times-are-told-apart", "running-tells-its-times")
class WithoutTimes(Reference):
    """Does not say how long a call queued and ran."""

    async def answer(self, call: Call, wait: float) -> pb.CallToolResponse:
        answer = await super().answer(call, wait)
        if answer.HasField("running"):
            return pb.CallToolResponse(running=pb.Running())
        answer.result.ClearField("queued")
        answer.result.ClearField("run")
        return answer


@broken(Rule.DEADLINE, "after-wait-the-answer-is-running", "a-wait-of-nothing-answers-at-once")
class HoldsTheAnswer(Reference):
    """Answers when the call has its result, however short `wait` is."""

    async def answer(self, call: Call, wait: float) -> pb.CallToolResponse:
        return await super().answer(call, 3600.0)


@broken(Rule.DEADLINE, "a-result-does-not-wait")
class AlwaysWaits(Reference):
    """Answers when `wait` is over, though the result is there."""

    async def answer(self, call: Call, wait: float) -> pb.CallToolResponse:
        await asyncio.sleep(wait if wait > 20 else 0)
        return await super().answer(call, wait)


@broken(Rule.DEADLINE, "a-negative-time-is-refused")
class AnyTime(Reference):
    """Takes negative times."""

    def seconds(self, request: Any, name: str, default: float) -> float:
        return float(abs(getattr(request, name).ToNanoseconds() / 1e9)) or default


@broken(
    Rule.CANCEL,
    "a-cancelled-call-is-stopped",
    "a-cancellation-is-recorded",
    "cancelling-is-idempotent",
    "a-queued-call-can-be-cancelled",
)
class CancelsNothing(Reference):
    """Says that a call is cancelled, and does nothing."""

    def cancel(self, session: ReferenceSession, call: Call) -> bool:
        return True


@broken(Rule.CANCEL, "a-cancelled-call-is-stopped")
class CancelledRunsOn(Reference):
    """Answers CANCELLED, and lets the tool run on."""

    def stop(self, call: Call) -> None:
        """Does not."""


@broken(Rule.CANCEL, "a-finished-call-stays-finished", "cancelling-is-idempotent")
class CancelsTheFinished(Reference):
    """Overwrites a result that was recorded."""

    def cancel(self, session: ReferenceSession, call: Call) -> bool:
        super().cancel(session, call)
        call.answer = asyncio.Future()
        return super().cancel(session, call)


@broken(Rule.CANCEL, "cancelling-the-unknown-is-fine")
class CancellingWantsACall(Reference):
    """Refuses to cancel a call that it does not know."""

    @answers_errors
    async def CancelCall(self, request: Any, context: Any) -> pb.CancelCallResponse:
        session = self.session(request.session_id)
        if request.call_id not in session.calls:
            raise refusal(reasons.ERROR_REASON_INVALID_REQUEST, "no such call", request.call_id)
        return pb.CancelCallResponse(cancelled=self.cancel(session, session.calls[request.call_id]))


@broken(Rule.CANCEL, "a-queued-call-can-be-cancelled")
class CancelsTheRunningAlone(Reference):
    """Cannot cancel a call that waits for another."""

    def cancel(self, session: ReferenceSession, call: Call) -> bool:
        return call.started is not None and super().cancel(session, call)


@broken(Rule.CANCEL, "a-session-outlives-a-cancelled-call")
class CancellingClosesTheSession(Reference):
    """Ends the session with a cancelled call, and does not say so."""

    def cancel(self, session: ReferenceSession, call: Call) -> bool:
        stopped = super().cancel(session, call)
        session.tools.clear()
        return stopped
