"""Services that are wrong in a way which no check has in mind: the model of the contract finds
them by random histories. Each was invented after the model, and passes every other check."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.support.conformance.broken.registry import broken
from tests.support.conformance.reference import Call, Reference, ReferenceSession
from toolsvc.check.types import Rule
from toolwright.rpc.errors import ServiceError
from toolwright.tool.v1 import tool_pb2 as pb

HISTORIES = "histories-are-as-the-contract-says"
CROWD = 12


@broken(Rule.HISTORY, HISTORIES)
class RenewingForgetsRecords(Reference):
    """Forgets what ended with the next renewal of the session's lease."""

    def renew(self, request: pb.RenewLeasesRequest) -> pb.RenewLeasesResponse:
        leases = super().renew(request)
        for session_id in leases.held:
            session = self.sessions[session_id]
            for call_id in [one for one, call in session.calls.items() if call.answer.done()]:
                del session.calls[call_id]
        return leases


@broken(Rule.HISTORY, HISTORIES)
class OpeningAgainTurnsBack(Reference):
    """A repeated OpenSession begins the turns anew, so that calls of old ones run."""

    async def open(self, request: pb.OpenSessionRequest) -> pb.OpenSessionResponse:
        opened = await super().open(request)
        self.sessions[request.session_id].acknowledged = 0
        return opened


@broken(Rule.HISTORY, HISTORIES)
class CancelsTheNeighbour(Reference):
    """CancelCall of a call that has ended stops another one of the session that runs."""

    def cancel(self, session: ReferenceSession, call: Call) -> bool:
        for one in session.calls.values():
            if call.answer.done() and one is not call and not one.answer.done():
                super().cancel(session, one)
        return super().cancel(session, call)


@broken(Rule.HISTORY, HISTORIES)
class ClosingForgetsForOthers(Reference):
    """With a session it forgets the newest record of the owner's other ones."""

    def close(self, session_id: str) -> bool:
        session = self.sessions.get(session_id)
        was_open = super().close(session_id)
        for name in self.held(session.request.owner) if session else ():
            calls = self.sessions[name].calls
            if calls and (newest := calls[next(reversed(calls))]).answer.done():
                del calls[newest.request.call_id]
        return was_open


@broken(Rule.HISTORY, HISTORIES)
class TheRefusedAreTaken(Reference):
    """A call that was refused for an old turn keeps its id from running in a newer one."""

    def known(self, session: ReferenceSession, request: pb.CallToolRequest) -> Call | None:
        try:
            return super().known(session, request)
        except ServiceError:
            session.inherited.add(request.call_id)
            raise


@broken(Rule.HISTORY, HISTORIES)
class TheUnreadableCountsDouble(Reference):
    """After an action that it could not read, the next effect of the session happens twice."""

    async def perform(self, session: ReferenceSession, call: Call) -> pb.CallResult:
        before = session.state.counter
        result = await super().perform(session, call)
        doubled = call.request.session_id + "/doubled"
        if not result.valid:
            self.blobs[doubled] = b""
        elif session.state.counter > before and self.blobs.pop(doubled, None) is not None:
            session.state.counter += 1
        return result


@broken(Rule.HISTORY, HISTORIES)
class LosesEffectsInACrowd(Reference):
    """Of more than twelve calls in flight in a session some have no effect."""

    async def run(self, session: ReferenceSession, *given: Any) -> pb.CallResult:
        waiting = sum(not call.answer.done() for call in session.calls.values())
        before = session.state.counter
        await asyncio.sleep(0.01)
        result = await super().run(session, *given)
        if waiting > CROWD and len(session.calls) % 2:
            session.state.counter = before
        return result


@broken(Rule.HISTORY, HISTORIES)
class AnotherOwnersOpeningMoves(Reference):
    """Refuses an open id to another owner, and gives the session to that owner all the same."""

    def __init__(self) -> None:
        super().__init__()
        self.moved: dict[str, str] = {}

    async def open(self, request: pb.OpenSessionRequest) -> pb.OpenSessionResponse:
        if request.session_id in self.sessions:
            self.moved[request.session_id] = request.owner
        return await super().open(request)

    def held(self, owner: str) -> list[str]:
        return [
            name
            for name, one in self.sessions.items()
            if self.moved.get(name, one.request.owner) == owner
        ]
