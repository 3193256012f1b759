"""What a host tells whoever counts: one method an occasion, all of them silent here.

They are called on the event loop, once for each thing that happened, and must be quick: `call_*`
lie on the way of every call.
"""

from __future__ import annotations

from toolsvc.errors import Reason
from toolsvc.types import Recorded


class Watch:
    def call_recorded(self, recorded: Recorded) -> None:
        """A call came to a result; asking for it again is no other call."""

    def call_refused(self, reason: Reason) -> None:
        """A call that had begun to queue came to nothing."""

    def lease_ended(self) -> None:
        """A session is ended because nobody renewed its lease."""
