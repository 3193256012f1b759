"""ForkSession, broken."""

from __future__ import annotations

from tests.support.conformance.broken.registry import broken
from tests.support.conformance.reference import Reference, ReferenceSession
from toolsvc.check.types import Rule
from toolwright.tool.v1 import tool_pb2 as pb


@broken(Rule.FORK, "a-fork-has-its-parents-state")
class ForksFromNothing(Reference):
    """Opens an empty session for a fork."""

    def hand_on(self, parent: ReferenceSession, child: ReferenceSession) -> None:
        """Hands on nothing."""


@broken(Rule.FORK, "effects-leak-neither-way")
class ForksShareState(Reference):
    """Gives a fork its parent's own state."""

    def hand_on(self, parent: ReferenceSession, child: ReferenceSession) -> None:
        super().hand_on(parent, child)
        child.state = parent.state


@broken(Rule.FORK, "a-fork-outlives-its-parent")
class ForksEndWithTheirParent(Reference):
    """Closes forks with their parent."""

    def __init__(self) -> None:
        super().__init__()
        self.forks: dict[str, list[str]] = {}

    def hand_on(self, parent: ReferenceSession, child: ReferenceSession) -> None:
        super().hand_on(parent, child)
        forks = self.forks.setdefault(parent.request.session_id, [])
        forks.append(child.request.session_id)

    def close(self, session_id: str) -> bool:
        for fork in self.forks.pop(session_id, []):
            self.close(fork)
        return super().close(session_id)


@broken(Rule.FORK, "a-fork-runs-no-call-of-its-parent")
class ForksForgetCalls(Reference):
    """Does not know in a fork what ran in its parent."""

    def hand_on(self, parent: ReferenceSession, child: ReferenceSession) -> None:
        child.state.counter = parent.state.counter


@broken(Rule.FORK, "a-fork-runs-no-call-of-its-parent")
class ForksDoNotTell(Reference):
    """Does not tell of a fork what ran in its parent."""

    def hand_on(self, parent: ReferenceSession, child: ReferenceSession) -> None:
        super().hand_on(parent, child)
        child.began.clear()


@broken(Rule.FORK, "a-fork-asked-for-twice-is-one")
class ForksAnew(Reference):
    """Makes a fork anew whenever it is asked for."""

    async def fork(self, request: pb.ForkSessionRequest) -> pb.OpenSessionResponse:
        self.sessions.pop(request.open.session_id, None)
        return await super().fork(request)


@broken(Rule.FORK, "a-fork-amid-a-call-is-busy")
class ForksAmidCalls(Reference):
    """Forks a session while a call of it runs."""

    def look_whether_it_is_idle(self, parent: ReferenceSession) -> None:
        """Does not."""


@broken(Rule.FORK, "what-does-not-fork-is-not-forked")
class ForksAnything(Reference):
    """Forks sessions of tools that say that they cannot be forked."""

    def look_whether_it_forks(self, parent: ReferenceSession) -> None:
        """Does not."""


@broken(Rule.FORK, "nobody-is-not-forked")
class ForksNobody(Reference):
    """Opens a session as the fork of one that it does not have."""

    async def fork(self, request: pb.ForkSessionRequest) -> pb.OpenSessionResponse:
        if request.session_id not in self.sessions:
            return await self.open(request.open)
        return await super().fork(request)
