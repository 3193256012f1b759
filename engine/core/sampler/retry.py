"""What follows when a request to a sampler fails: a state machine of one action, without I/O.

Whoever drives it says what failed and what time it is; it says whether to ask again and when.

Invariants
- The budget is time, not tries: an action is given up only after `patience` seconds in which
  requests failed and no token came. Time in which no sampler was up does not count.
- Every token that comes renews the budget.
- A request that is refused is asked of every other sampler once, and then given up at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from toolwright.process.backoff import Backoff

BACKOFF = Backoff(0.1, 5.0)
"""A server that is back is asked again soon, one that stays away is not drowned."""
MOST_UNANSWERED = 2
"""Requests with images that a living server drops unanswered: SGLang drops a request whose image
breaks its decoder, and another try would be dropped too."""


class Fault(StrEnum):
    """How a request ended that brought no finish."""

    BROKEN = "broken"
    """No connection, or it ended inside the stream."""
    SILENT = "silent"
    """The connection stands and nothing came for the longest silence."""
    MALFORMED = "malformed"
    """The server said what the wire excludes, or that something went wrong on its side."""
    REFUSED = "refused"
    """The server does not take this request."""
    ABORTED = "aborted"
    """The server ended the request before its first token: a pause, or somebody else's abort."""


@dataclass(frozen=True, slots=True)
class Again:
    """Ask again after so many seconds."""

    after: float


@dataclass(frozen=True, slots=True)
class Over:
    """Give the action up. permanent: another attempt would be refused as well."""

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
        """A request ended at `now`, after `brought` tokens.

        others: a sampler is up that has not refused this request. lives: the server answered
        after its stream broke.
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
        """No sampler was up for so long: that is no failure of this action."""
        if self._began is not None:
            self._began += seconds
