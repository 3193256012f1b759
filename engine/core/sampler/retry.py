"""What follows a failed request to a sampler: a state machine of one action, without I/O.

The caller reports the failure and the time. The machine says whether to send again, and when.

Invariants
- The budget is time, not tries. An action is given up only after `patience` seconds in which
  requests failed and no token came. Time in which no sampler was up does not count.
- Every token that comes renews the budget.
- A refused request goes to every other sampler once, and is then given up at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from toolwright.process.backoff import Backoff

BACKOFF = Backoff(0.1, 5.0)
"""Pauses: a server that is back gets a request soon, one that stays away is not flooded."""
MOST_UNANSWERED = 2
"""Requests with images that a living server may drop unanswered. SGLang drops a request whose image
breaks its decoder, and would drop another try too."""


class Fault(StrEnum):
    """How a request without a finish ended."""

    BROKEN = "broken"
    """No connection, or it ended inside the stream."""
    SILENT = "silent"
    """The connection stands, and nothing came for the longest silence."""
    MALFORMED = "malformed"
    """The server sent what the wire format excludes, or reported a fault on its side."""
    REFUSED = "refused"
    """The server refused this request."""
    ABORTED = "aborted"
    """The server ended the request before its first token: a pause, or another client's abort."""


@dataclass(frozen=True, slots=True)
class Again:
    """Send again after so many seconds."""

    after: float


@dataclass(frozen=True, slots=True)
class Over:
    """Give up the action. permanent: another attempt would be refused as well."""

    permanent: bool = False


class Retry:
    """One action's failures."""

    def __init__(self, *, patience: float, images: bool = False) -> None:
        self._patience = patience
        self._images = images
        self._tries = 0
        self._unanswered = 0
        self._brought = 0
        self._began: float | None = None

    def failed(
        self, fault: Fault, *, now: float, brought: int, others: bool, lives: bool = False
    ) -> Again | Over:
        """Decides after a request that ended at `now` with `brought` tokens.

        others: a sampler is up that has not refused this request. lives: the server answered after
        its stream broke.
        """
        self._brought += brought
        if brought:
            self._tries = self._unanswered = 0
            self._began = None
        if fault is Fault.REFUSED and not others:
            return Over(permanent=not self._brought)
        if fault is Fault.BROKEN and lives and self._images and not brought:
            self._unanswered += 1
            if self._unanswered >= MOST_UNANSWERED:
                return Over()
        if self._began is None:
            self._began = now
        elif now - self._began > self._patience:
            return Over()
        self._tries += 1
        if fault is Fault.REFUSED or (self._tries == 1 and others):
            return Again(0.0)
        return Again(BACKOFF.pause(self._tries))

    def waited(self, seconds: float) -> None:
        """Excludes time in which no sampler was up from this action's budget."""
        if self._began is not None:
            self._began += seconds
