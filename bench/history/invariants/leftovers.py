"""The end of a run: nothing is held, and it came in time."""

from __future__ import annotations

from collections.abc import Mapping

from bench.history.events import (
    Abandoned,
    FaultsOver,
    Finished,
    LifeBegan,
    LifeEnded,
    Offered,
    Planned,
    Seen,
    SessionClosed,
    SessionOpened,
)
from bench.history.findings import Findings, Handler, Invariant, Judge
from bench.history.names import attempt_of_session, group_of

NOTHING_HELD = Invariant(
    name="nothing_is_left",
    promise="After the end no session, request, place or task is held.",
    source="ARCHITECTURE.md, Cancellation",
)
NO_SESSION = Invariant(
    name="delivered_groups_leave_no_session",
    promise="When an engine stops after the last fault, no group that was delivered a lease "
    "earlier has an open session.",
    source="engine/core/tools/sessions/leases.py",
)
ABORTED = Invariant(
    name="left_requests_are_aborted",
    promise="A request that the engine left, or whose stream broke, is aborted at its server.",
    source="engine/core/sampler/pool.py",
)
FINISHES = Invariant(
    name="finishes_after_faults",
    promise="After the last fault the run completes within the bound.",
    source="ARCHITECTURE.md, Where state lives, and what happens when something dies",
)


class Leftovers(Judge):
    invariants = (NOTHING_HELD, NO_SESSION, ABORTED, FINISHES)

    def __init__(self, planned: Planned, findings: Findings) -> None:
        super().__init__(planned, findings)
        self._over: FaultsOver | None = None
        self._finished = False
        self._open: dict[str, None] = {}
        self._delivered: dict[str, float] = {}
        """Group to its first offer."""
        self._began = 0.0

    def handlers(self) -> Mapping[type[Seen], Handler]:
        return {
            LifeBegan: self._life_began,
            LifeEnded: self._life_ended,
            SessionOpened: self._opened,
            SessionClosed: self._closed,
            Offered: self._offered,
            Abandoned: self._abandoned,
            FaultsOver: self._faults_over,
            Finished: self._finish,
        }

    def _life_began(self, _index: int, event: LifeBegan) -> None:
        self._began = event.at

    def _opened(self, _index: int, event: SessionOpened) -> None:
        self._open[event.session] = None

    def _closed(self, _index: int, event: SessionClosed) -> None:
        self._open.pop(event.session, None)

    def _offered(self, _index: int, event: Offered) -> None:
        self._delivered.setdefault(event.group, event.at)

    def _life_ended(self, index: int, event: LifeEnded) -> None:
        if event.killed or self._over is None or not self.planned.lease_s:
            return
        if self._delivered:
            self.findings.judged(NO_SESSION)
        for session in self._open:
            attempt = attempt_of_session(session)
            delivered = self._delivered.get(group_of(attempt))
            if delivered is None:
                continue
            seconds = event.at - max(delivered, self._over.at, self._began)
            if seconds > self.planned.lease_s:
                self.findings.breaks(
                    NO_SESSION,
                    index,
                    f"session {session} is still open {seconds:.3f} s after its group was "
                    "delivered, and nothing kept the engine from closing it",
                    attempt,
                    session,
                )

    def _abandoned(self, index: int, event: Abandoned) -> None:
        self.findings.judged(ABORTED)
        if event.aborted:
            return
        self.findings.breaks(
            ABORTED,
            index,
            f"{event.server} got no abort for a request of {event.attempt}",
            event.attempt,
            event.server,
        )

    def _faults_over(self, _index: int, event: FaultsOver) -> None:
        self._over = event

    def _finish(self, index: int, event: Finished) -> None:
        self._finished = True
        found = self.findings
        found.judged(NOTHING_HELD)
        counts = {
            "sessions": event.sessions,
            "requests": event.requests,
            "places": event.places,
            "tasks": event.tasks,
        }
        held = ", ".join(f"{count} {name}" for name, count in counts.items() if count)
        if held:
            found.breaks(NOTHING_HELD, index, f"after the end are held: {held}")
        over = self._over
        if over is None:
            return
        found.judged(FINISHES)
        seconds = event.at - over.at
        if not event.complete:
            found.breaks(
                FINISHES, index, f"the run is not complete {seconds:.3f} s after the last fault"
            )
        elif seconds > over.bound:
            found.breaks(
                FINISHES,
                index,
                f"the run ended {seconds:.3f} s after the last fault; the bound is "
                f"{over.bound:.3f} s",
            )

    def finish(self, last: int) -> None:
        if self._over is not None and not self._finished:
            self.findings.breaks(FINISHES, last, "the history has no end after the last fault")
