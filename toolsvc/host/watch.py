"""Events of a host for counters and spans: one method for each event; here they all do nothing.

They are called on the event loop, once for each thing that happened, and must be quick: `call_*`
lie on the way of every call.
"""

from __future__ import annotations

from collections.abc import Sequence

from toolsvc.errors import Reason
from toolsvc.types import Recorded, SessionInfo


class Watch:
    def call_recorded(self, recorded: Recorded) -> None:
        """A call came to a result; asking for it again is no other call."""

    def call_ended(self, session: SessionInfo, call_id: str, recorded: Recorded) -> None:
        """The same, for those who want to know which call of whose it was."""

    def call_refused(self, reason: Reason) -> None:
        """A call that had begun to queue came to nothing."""

    def lease_ended(self) -> None:
        """A session is ended because its lease was not renewed."""


class Several(Watch):
    """Tells each of them, in order."""

    def __init__(self, watches: Sequence[Watch]) -> None:
        self._watches = tuple(watches)

    def call_recorded(self, recorded: Recorded) -> None:
        for watch in self._watches:
            watch.call_recorded(recorded)

    def call_ended(self, session: SessionInfo, call_id: str, recorded: Recorded) -> None:
        for watch in self._watches:
            watch.call_ended(session, call_id, recorded)

    def call_refused(self, reason: Reason) -> None:
        for watch in self._watches:
            watch.call_refused(reason)

    def lease_ended(self) -> None:
        for watch in self._watches:
            watch.lease_ended()
