"""Services that remember too little, for too short a time, or too loosely."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from tests.support.conformance.broken.registry import broken
from tests.support.conformance.reference import Call, Reference, ReferenceSession
from tests.support.conformance.reference.tools import failed
from toolsvc.check.types import Rule
from toolwright.rpc.errors import ServiceError
from toolwright.tool.v1 import tool_pb2 as pb
from toolwright.types import ToolErrorKind

FEW = 16
KEPT_SECONDS = 10.0
LATER_SECONDS = 3.0
CROWD = 12


@broken(Rule.SAME_ANSWER, "many-calls-are-all-remembered")
class RemembersSixteenCalls(Reference):
    """Keeps the records of a session's last sixteen calls, and forgets that others ran."""

    def begin(self, session: ReferenceSession, call: Call) -> None:
        for call_id in list(session.calls)[: -FEW + 1]:
            if session.calls[call_id].answer.done():
                del session.calls[call_id]
        super().begin(session, call)


@broken(Rule.SAME_ANSWER, "many-calls-are-all-remembered")
class RemembersSixteenOldIds(Reference):
    """Forgets acknowledged calls beyond sixteen whole."""

    def begin(self, session: ReferenceSession, call: Call) -> None:
        old = [i for i, one in session.calls.items() if one.request.turn < call.request.turn]
        for call_id in old[:-FEW]:
            del session.calls[call_id]
        super().begin(session, call)


@broken(Rule.SAME_ANSWER, "a-record-lasts", "what-ran-has-run-for-good")
class ForgetsAfterTenSeconds(Reference):
    """Forgets whole what ended ten seconds ago."""

    def known(self, session: ReferenceSession, request: pb.CallToolRequest) -> Call | None:
        for call_id, call in list(session.calls.items()):
            if call.answer.done() and time.perf_counter() - call.asked > KEPT_SECONDS:
                del session.calls[call_id]
        return super().known(session, request)


@broken(Rule.SAME_ANSWER, "another-request-is-refused")
class IgnoresTurnAndTool(Reference):
    """Knows a call by its id and action, whatever its turn and tool."""

    def identity(self, request: pb.CallToolRequest) -> bytes:
        copy = pb.CallToolRequest()
        copy.CopyFrom(request)
        copy.ClearField("turn")
        copy.ClearField("tool")
        return super().identity(copy)


@broken(Rule.LEASE, "owners-are-told-apart", "what-strangers-renew-ends")
class OwnersByPrefix(Reference):
    """Takes an owner for another one whose name begins in the same way."""

    def held(self, owner: str) -> list[str]:
        return [one for one, its in self.sessions.items() if its.request.owner.startswith(owner)]


class _Folded(dict[str, Any]):
    """A table whose keys have no case."""

    def __getitem__(self, key: str) -> Any:
        return super().__getitem__(key.casefold())

    def __setitem__(self, key: str, value: Any) -> None:
        super().__setitem__(key.casefold(), value)

    def __contains__(self, key: object) -> bool:
        return super().__contains__(str(key).casefold())

    def get(self, key: str, default: Any = None) -> Any:
        return super().get(key.casefold(), default)

    def pop(self, key: str, default: Any = None) -> Any:
        return super().pop(key.casefold(), default)


@broken(Rule.SESSIONS, "session-ids-are-told-apart")
class FoldsTheCaseOfSessions(Reference):
    """Takes two session ids for one that differ in case."""

    def __init__(self) -> None:
        super().__init__()
        self.sessions: dict[str, ReferenceSession] = _Folded()

    async def open(self, request: pb.OpenSessionRequest) -> pb.OpenSessionResponse:
        session_id = request.session_id
        known = self.sessions.get(session_id)
        if known is not None:
            request.session_id = known.request.session_id
        opened = await super().open(request)
        opened.session_id = session_id
        return opened


@broken(Rule.SAME_ANSWER, "call-ids-are-told-apart")
class CutsCallIds(Reference):
    """Keeps the first 255 characters of a call id."""

    async def call(self, request: pb.CallToolRequest) -> pb.CallToolResponse:
        request.call_id = request.call_id[:255]
        return await super().call(request)


@broken(Rule.CANCEL, "a-cancelled-call-has-no-late-effect")
class CancelledTakesEffectLater(Reference):
    """Three seconds after it was cancelled a call has its effect, and its record turns OK."""

    def cancel(self, session: ReferenceSession, call: Call) -> bool:
        stopped = super().cancel(session, call)
        if stopped:
            asyncio.get_running_loop().call_later(LATER_SECONDS, _come_true, session, call)
        return stopped


@broken(Rule.TWO_LIMITS, "a-stopped-call-has-no-late-effect")
class StoppedTakesEffectLater(Reference):
    """Three seconds after its TIMEOUT a call has its effect, and its record turns OK."""

    async def work(self, session: ReferenceSession, call: Call) -> None:
        await super().work(session, call)
        kind = None if call.answer.exception() else call.answer.result().error.kind
        if kind == int(ToolErrorKind.TIMEOUT):
            asyncio.get_running_loop().call_later(LATER_SECONDS, _come_true, session, call)


@broken(Rule.TWO_LIMITS, "a-refused-call-has-no-late-effect")
class RefusedTakesEffectLater(Reference):
    """Three seconds after it was refused for its queue limit a call has its effect."""

    async def queue(self, turnstile: asyncio.Lock, limit: float, call_id: str) -> None:
        try:
            await super().queue(turnstile, limit, call_id)
        except ServiceError:
            for session in self.sessions.values():
                if call_id in session.calls:
                    asyncio.get_running_loop().call_later(LATER_SECONDS, _count, session)
            raise


def _come_true(session: ReferenceSession, call: Call) -> None:
    _count(session)
    call.answer = asyncio.Future()
    call.answer.set_result(pb.CallResult(valid=True))


def _count(session: ReferenceSession) -> None:
    session.state.counter += 1


@broken(Rule.SEVERAL_CALLS, "many-answers-are-matched-by-id")
class CrossesAnswersInACrowd(Reference):
    """Mixes the answers up where more than twelve calls are in flight."""

    def __init__(self) -> None:
        super().__init__()
        self.in_flight = 0
        self.last = failed(ToolErrorKind.EXCEPTION, "nothing yet")

    async def run(self, *given: Any) -> pb.CallResult:
        self.in_flight += 1
        try:
            crowded = self.in_flight > CROWD
            await asyncio.sleep(0.2)
            result = await super().run(*given)
        finally:
            self.in_flight -= 1
        answer = self.last if crowded else result
        self.last = result
        return answer


@broken(Rule.SESSIONS, "a-closed-id-brings-nothing-back")
class GivesTheClosedBack(Reference):
    """Opens a closed session again with all that it had."""

    def __init__(self) -> None:
        super().__init__()
        self.graves: dict[str, ReferenceSession] = {}

    def close(self, session_id: str) -> bool:
        session = self.sessions.get(session_id)
        if session is not None:
            self.graves[session_id] = session
        return super().close(session_id)

    async def open(self, request: pb.OpenSessionRequest) -> pb.OpenSessionResponse:
        buried = self.graves.pop(request.session_id, None)
        if buried is not None:
            self.closed.discard(request.session_id)
            self.sessions[request.session_id] = buried
        return await super().open(request)


@broken(Rule.SESSIONS, "a-closed-session-stays-closed")
class TheClosedRise(GivesTheClosedBack):
    """Three seconds after it was closed a session is there again."""

    def close(self, session_id: str) -> bool:
        was_open = super().close(session_id)
        buried = self.graves.pop(session_id, None)
        if buried is not None:
            later = asyncio.get_running_loop().call_later
            later(LATER_SECONDS, self.sessions.__setitem__, session_id, buried)
        return was_open
