"""Rules 1, 2, 5 and 7, broken: what calls answer, and how often they run."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
from grpc_status import rpc_status

from tests.support.conformance.broken.registry import broken
from tests.support.conformance.reference import Call, Reference, ReferenceSession, refusal
from tests.support.conformance.reference.tools import failed
from toolsvc.check.types import Rule
from toolwright.common.v1 import reasons_pb2 as reasons
from toolwright.common.v1 import trajectory_pb2
from toolwright.rpc.errors import ServiceError, to_status
from toolwright.tool.v1 import tool_pb2 as pb
from toolwright.types import ToolErrorKind

# Rule 1


@broken(Rule.FAILURES, "a-result-names-its-tool")
class ResultsOfNobody(Reference):
    """Its results do not say which tool answered."""

    async def perform(self, *given: Any) -> pb.CallResult:
        result = await super().perform(*given)
        result.tool = ""
        return result


@broken(Rule.FAILURES, "an-author-may-speak-in-observations")
class SpeaksAsTheModel(Reference):
    """Says that the model wrote its observations."""

    async def perform(self, *given: Any) -> pb.CallResult:
        result = await super().perform(*given)
        result.author = trajectory_pb2.AUTHOR_MODEL
        return result


@broken(Rule.FAILURES, "an-author-may-speak-in-observations")
class BoundlessBudgets(Reference):
    """Names a budget of tokens that no model could read."""

    async def perform(self, *given: Any) -> pb.CallResult:
        result = await super().perform(*given)
        result.token_budget = 2**32 - 1
        return result


@broken(Rule.FAILURES, "the-tool-is-found-by-its-format")
class WantsAToolNamed(Reference):
    """Refuses calls that name no tool."""

    async def call(self, request: pb.CallToolRequest) -> pb.CallToolResponse:
        self.require(request, "tool")
        return await super().call(request)


@broken(Rule.FAILURES, "a-failure-is-an-answer")
class FailuresAreErrors(Reference):
    """Answers a tool's failure with an error of the service."""

    async def run(self, *given: Any) -> pb.CallResult:
        result = await super().run(*given)
        if result.error.kind == reasons.TOOL_ERROR_KIND_EXCEPTION:
            raise refusal(reasons.ERROR_REASON_INTERNAL, result.error.message, "")
        return result


@broken(Rule.FAILURES, "a-failure-leaves-the-session")
class FailuresLoseTheState(Reference):
    """A failed call takes the session's state with it and does not say so."""

    async def run(self, session: ReferenceSession, *given: Any) -> pb.CallResult:
        result = await super().run(session, *given)
        if result.HasField("error"):
            session.state.counter = 0
        return result


@broken(
    Rule.FAILURES,
    "text-without-a-block-is-invalid",
    "broken-json-is-invalid",
    "missing-arguments-are-invalid",
)
class InvalidActionsAreErrors(Reference):
    """Answers an action that it cannot read with an error of the service."""

    async def perform(self, *given: Any) -> pb.CallResult:
        result = await super().perform(*given)
        if not result.valid:
            raise refusal(reasons.ERROR_REASON_INVALID_REQUEST, result.invalid_reason, "action")
        return result


@broken(Rule.FAILURES, "an-unknown-tool-is-refused")
class RefusalsAreAnswers(Reference):
    """Shows the policy what the service could not do."""

    async def perform(self, *given: Any) -> pb.CallResult:
        try:
            return await super().perform(*given)
        except ServiceError as error:
            return failed(ToolErrorKind.UNKNOWN_TOOL, error.message)


@broken(Rule.FAILURES, "a-lost-session-is-refused")
class ServesTheLost(Reference):
    """Says that a session is lost, and serves it on with another state."""

    async def run(self, *given: Any) -> pb.CallResult:
        result = await super().run(*given)
        result.error.session_lost = result.error.kind == reasons.TOOL_ERROR_KIND_TIMEOUT
        return result if result.error.kind else _without_error(result)


def _without_error(result: pb.CallResult) -> pb.CallResult:
    result.ClearField("error")
    return result


# Rule 2


@broken(
    Rule.SAME_ANSWER,
    "the-same-id-gets-the-same-answer",
    "a-repetition-has-no-effect",
    "a-recorded-failure-stays",
    "a-retry-joins-the-call-in-flight",
)
class RunsTwice(Reference):
    """Keeps no ledger: whatever is sent, runs."""

    def known(self, session: ReferenceSession, request: pb.CallToolRequest) -> Call | None:
        return None


@broken(Rule.SAME_ANSWER, "a-retry-joins-the-call-in-flight")
class RunsBesideItself(Reference):
    """Records what is finished, and runs again what is not."""

    def known(self, session: ReferenceSession, request: pb.CallToolRequest) -> Call | None:
        call = super().known(session, request)
        return call if call is not None and call.answer.done() else None


@broken(
    Rule.SAME_ANSWER,
    "a-cancelled-rpc-stops-nothing",
    "a-cut-connection-stops-nothing",
    "a-deadline-stops-nothing",
    "a-deadline-needs-nobody-who-asks-again",
    "a-broken-stream-stops-no-call",
)
class CallsBelongToRpcs(Reference):
    """Stops a call when the RPC that asked for it goes away."""

    async def answer(self, call: Call, wait: float) -> pb.CallToolResponse:
        try:
            return await super().answer(call, wait)
        except asyncio.CancelledError:
            self.settle(call, failed(ToolErrorKind.CANCELLED, "nobody waits"))
            self.stop(call)
            raise


@broken(
    Rule.SAME_ANSWER,
    "another-action-is-refused",
    "another-request-is-refused",
    "another-action-in-flight-is-refused",
)
class IdsAlone(Reference):
    """Knows a call by its id, whatever else is in the request."""

    def identity(self, request: pb.CallToolRequest) -> bytes:
        return b""


@broken(Rule.SAME_ANSWER, "another-request-is-refused")
class ActionsAlone(Reference):
    """Knows a call by its id and its action, and by nothing else of the request."""

    def identity(self, request: pb.CallToolRequest) -> bytes:
        return request.action.encode()


@broken(Rule.SAME_ANSWER, "limits-are-not-the-request")
class LimitsToo(Reference):
    """Takes a repetition with other limits for another request."""

    def identity(self, request: pb.CallToolRequest) -> bytes:
        return request.SerializeToString(deterministic=True)


@broken(Rule.SAME_ANSWER, "a-refused-id-stays-free", "past-the-queue-limit-the-id-is-free")
class RecordsRefusals(Reference):
    """Records an error under which nothing ran."""

    def free(self, session: ReferenceSession, call_id: str) -> None:
        """Keeps it."""


@broken(Rule.SAME_ANSWER, "ids-belong-to-their-session")
class OneLedger(Reference):
    """Has one ledger for all sessions."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: dict[str, Call] = {}

    async def open(self, request: pb.OpenSessionRequest) -> pb.OpenSessionResponse:
        opened = await super().open(request)
        self.sessions[request.session_id].calls = self.calls
        return opened


@broken(
    Rule.SAME_ANSWER,
    "an-acknowledged-call-never-runs-again",
    "a-new-id-of-an-acknowledged-turn-is-refused",
    "a-forgotten-id-cannot-be-used-again",
)
class ForgetsThatItRan(Reference):
    """Forgets acknowledged calls whole, and runs them again."""

    def begin(self, session: ReferenceSession, call: Call) -> None:
        for call_id, known in list(session.calls.items()):
            if known.request.turn < call.request.turn:
                del session.calls[call_id]
        super().begin(session, call)
        session.acknowledged = 0


@broken(Rule.SAME_ANSWER, "a-turn-does-not-acknowledge-itself")
class AcknowledgesItsOwnTurn(Reference):
    """Forgets the results of a turn with the turn's next call."""

    def begin(self, session: ReferenceSession, call: Call) -> None:
        session.calls.clear()
        super().begin(session, call)


# Rule 5


class _Errors(Reference):
    """Changes what CallTool is refused with."""

    async def call(self, request: pb.CallToolRequest) -> pb.CallToolResponse:
        try:
            return await super().call(request)
        except ServiceError as error:
            raise self.changed(error) from error

    def changed(self, error: ServiceError) -> ServiceError:
        raise NotImplementedError


@broken(Rule.REASONS, "refusals-name-their-subject", "a-missing-field-is-named")
class WithoutSubject(_Errors):
    """Refuses without saying what it speaks of."""

    def changed(self, error: ServiceError) -> ServiceError:
        return ServiceError(error.reason, error.message, retry_after=error.retry_after)


@broken(Rule.REASONS, "what-never-helps-is-not-invited")
class AlwaysInvites(_Errors):
    """Invites a retry of what can never be done."""

    def changed(self, error: ServiceError) -> ServiceError:
        return refusal(error.reason, error.message, error.subject, retry_after=1.0)


@broken(Rule.REASONS, "refusals-name-their-subject", "an-unknown-session-is-refused")
class OneReason(_Errors):
    """Says INTERNAL to everything."""

    def changed(self, error: ServiceError) -> ServiceError:
        return refusal(reasons.ERROR_REASON_INTERNAL, error.message, error.subject)


@broken(Rule.REASONS, "refusals-name-their-subject", "an-unknown-tool-is-refused")
class Untyped(Reference):
    """Refuses with a code and a text alone."""

    async def CallTool(self, request: Any, context: Any) -> pb.CallToolResponse:
        try:
            return await self.call(request)
        except ServiceError as error:
            await context.abort(error.code, error.message)
            raise


@broken(Rule.REASONS, "refusals-name-their-subject", "past-the-queue-limit-nothing-ran")
class OneCode(Reference):
    """Sends the right reason under another gRPC code."""

    async def CallTool(self, request: Any, context: Any) -> pb.CallToolResponse:
        try:
            return await self.call(request)
        except ServiceError as error:
            status = to_status(error)
            status.code = grpc.StatusCode.ABORTED.value[0]
            await context.abort_with_status(rpc_status.to_status(status))
            raise


@broken(Rule.REASONS, "what-is-not-announced-is-not-served")
class UntypedUnimplemented(Reference):
    """Does not say NOT_SERVED."""

    async def SnapshotSession(self, request: Any, context: Any) -> Any:
        await context.abort(grpc.StatusCode.UNIMPLEMENTED, "no")


# Rule 7


@broken(Rule.SEVERAL_CALLS, "answers-are-matched-by-id", "records-are-matched-by-id")
class CrossedAnswers(Reference):
    """Answers each call with what the one before it came to."""

    def __init__(self) -> None:
        super().__init__()
        self.last = failed(ToolErrorKind.EXCEPTION, "nothing yet")

    async def run(self, *given: Any) -> pb.CallResult:
        answer, self.last = self.last, await super().run(*given)
        return answer


@broken(Rule.SEVERAL_CALLS, "answers-of-many-sessions-are-matched-by-id")
class CrossedAnswersFromTwelveOn(Reference):
    """Answers with what the call before came to while twelve calls run."""

    def __init__(self) -> None:
        super().__init__()
        self.running = 0
        self.last = failed(ToolErrorKind.EXCEPTION, "nothing yet")

    async def run(self, *given: Any) -> pb.CallResult:
        self.running += 1
        try:
            result, before = await super().run(*given), self.last
            self.last = result
            return before if self.running >= 12 else result
        finally:
            self.running -= 1


@broken(Rule.SEVERAL_CALLS, "parallel-calls-overlap")
class AllInOneLine(Reference):
    """Runs calls of parallel tools one after another."""

    def turnstile(self, session: ReferenceSession, tool: pb.ToolDescriptor) -> asyncio.Lock:
        return session.state.serial


@broken(Rule.SEVERAL_CALLS, "serial-calls-keep-their-order")
class AllAtOnce(Reference):
    """Runs calls of serial tools at the same time."""

    def turnstile(self, session: ReferenceSession, tool: pb.ToolDescriptor) -> asyncio.Lock:
        return asyncio.Lock()


@broken(Rule.SEVERAL_CALLS, "concurrent-effects-all-count")
class LosesEffects(AllAtOnce):
    """Calls at the same time overwrite each other's effects."""

    async def run(
        self, session: ReferenceSession, tool: pb.ToolDescriptor, arguments: Any, limit: float
    ) -> pb.CallResult:
        before = session.state.counter
        await asyncio.sleep(0.05)
        result = await super().run(session, tool, arguments, limit)
        session.state.counter = before + arguments.get("add", 0)
        return result
