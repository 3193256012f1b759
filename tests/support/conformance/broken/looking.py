"""GetSession, broken."""

from __future__ import annotations

import time

from tests.support.conformance.broken.registry import broken
from tests.support.conformance.reference import Call, Reference, ReferenceSession
from toolsvc.check.types import Rule
from toolwright.rpc.errors import ServiceError
from toolwright.tool.v1 import tool_pb2 as pb


@broken(Rule.HELD, "a-session-tells-what-ran", "what-was-acknowledged-is-told-too")
class TellsTheNewestFirst(Reference):
    """Lists calls in the wrong order."""

    def look(self, session_id: str) -> pb.GetSessionResponse:
        told = super().look(session_id)
        return pb.GetSessionResponse(call_ids=reversed(told.call_ids), tools=told.tools)


class _TellsSome(Reference):
    """Lists some of the calls that ran."""

    def look(self, session_id: str) -> pb.GetSessionResponse:
        told = super().look(session_id)
        session = self.session(session_id)
        ids = [one for one in told.call_ids if self.tells(session, session.calls[one])]
        return pb.GetSessionResponse(call_ids=ids, tools=told.tools)

    def tells(self, session: ReferenceSession, call: Call) -> bool:
        raise NotImplementedError


@broken(Rule.HELD, "what-was-acknowledged-is-told-too")
class TellsWhatItHolds(_TellsSome):
    """Does not list calls that were acknowledged."""

    def tells(self, session: ReferenceSession, call: Call) -> bool:
        return call.request.turn >= session.acknowledged


@broken(Rule.HELD, "what-failed-is-told-too")
class TellsSuccesses(_TellsSome):
    """Does not list calls that failed."""

    def tells(self, session: ReferenceSession, call: Call) -> bool:
        return not call.answer.result().HasField("error")


@broken(Rule.HELD, "what-never-ran-is-not-told")
class TellsWhatWasAsked(Reference):
    """Lists calls that were refused."""

    def begin(self, session: ReferenceSession, call: Call) -> None:
        session.began[call.request.call_id] = None
        super().begin(session, call)


@broken(Rule.HELD, "a-session-tells-its-tools")
class TellsAllTools(Reference):
    """Lists all tools, whatever the session has."""

    def look(self, session_id: str) -> pb.GetSessionResponse:
        told = super().look(session_id)
        return pb.GetSessionResponse(call_ids=told.call_ids, tools=self.tools())


@broken(Rule.HELD, "a-session-that-is-not-here-tells-nothing")
class TellsOfNobody(Reference):
    """Answers for sessions that it does not have."""

    def look(self, session_id: str) -> pb.GetSessionResponse:
        try:
            return super().look(session_id)
        except ServiceError:
            return pb.GetSessionResponse()


@broken(Rule.HELD, "looking-renews-no-lease")
class LookingRenews(Reference):
    """Takes a look for a renewal."""

    def look(self, session_id: str) -> pb.GetSessionResponse:
        self.session(session_id).lease_until = time.monotonic() + 60
        return super().look(session_id)
