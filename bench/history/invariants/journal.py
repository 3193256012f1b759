"""The journal at the end of each life, compared with the events that the engine appended."""

from __future__ import annotations

from collections.abc import Mapping

from bench.history.events import (
    Acknowledged,
    Fault,
    FaultEnded,
    Journaled,
    LearnerRefused,
    LifeBegan,
    LifeEnded,
    Planned,
    RoomAgain,
    Seen,
    SessionClosed,
    SessionOpened,
)
from bench.history.findings import Findings, Handler, Invariant, Judge
from bench.history.names import attempt_of_session, trajectory_of

DURABLE_S = 1.5
"""RETRY_S of the journal's writer, and the delay that the simulated disk adds to a commit."""
DISK_FULL = "disk_full"
"""Kind of the fault that leaves the journal's disk without room."""
PREFIX = Invariant(
    name="logs_are_prefixes",
    promise="What the journal holds of an attempt are its first events, in order.",
    source="engine/serving/journal/logs.py",
)
DURABLE = Invariant(
    name="events_become_durable",
    promise="An event is durable after the next job that commits, and "
    f"{DURABLE_S:g} s after it was appended if the disk has room.",
    source="engine/serving/journal/writer.py, GROUP_COMMIT_S and RETRY_S",
)
ONE_OPEN = Invariant(
    name="one_open_log",
    promise="At most one log of a trajectory is open, and its group is not complete.",
    source="engine/serving/journal/logs.py; engine/core/rollout/attempts.py",
)
FREES = Invariant(
    name="a_full_disk_takes_acknowledgements",
    promise="An acknowledgement makes room, so a full disk does not refuse it.",
    source="engine/serving/journal/writer.py, Writer.write, frees",
)
ROOM = Invariant(
    name="a_full_disk_ends_by_itself",
    promise=f"The engine notices within {DURABLE_S:g} s that its disk has room again.",
    source="engine/serving/journal/writer.py, RETRY_S",
)
SESSIONS_STAY = Invariant(
    name="sessions_in_flight_stay_open",
    promise="An engine that stops closes no session of an attempt that a later life goes on with.",
    source="engine/serving/serve.py; ARCHITECTURE.md, Cancellation",
)


class Journals(Judge):
    invariants = (PREFIX, DURABLE, ONE_OPEN, FREES, ROOM, SESSIONS_STAY)

    def __init__(self, planned: Planned, findings: Findings) -> None:
        super().__init__(planned, findings)
        self._open: dict[str, str] = {}
        """Trajectory to its open log, at the end of this life."""
        self._in_flight: dict[str, int] = {}
        """Attempts of a life that stopped, which a later life goes on with, to the event."""
        self._shut: set[str] = set()
        """Attempts whose newest session the engine closed."""
        self._newest: dict[str, str] = {}
        """Attempt to the newest session that this life opened: no other life closes that one."""
        self._stopped = False
        """The life has ended, and was not killed."""
        self._full = 0
        """Faults that keep the disk full now."""

    def handlers(self) -> Mapping[type[Seen], Handler]:
        return {
            LifeBegan: self._began,
            LifeEnded: self._ended,
            Journaled: self._journaled,
            Fault: self._fault,
            FaultEnded: self._fault_ended,
            Acknowledged: self._acknowledged,
            LearnerRefused: self._refused,
            RoomAgain: self._room_again,
            SessionOpened: self._opened,
            SessionClosed: self._closed,
        }

    def _began(self, _index: int, _event: LifeBegan) -> None:
        self._open.clear()
        self._in_flight.clear()
        self._newest.clear()
        self._shut.clear()
        self._stopped = False

    def _ended(self, index: int, event: LifeEnded) -> None:
        if event.killed:
            return
        self._stopped = True
        for attempt in self._in_flight:
            self.findings.judged(SESSIONS_STAY)
            if attempt in self._shut:
                self._closed_early(index, attempt)

    def _journaled(self, index: int, event: Journaled) -> None:
        found, attempt = self.findings, event.attempt
        found.judged(PREFIX)
        if event.agreeing < event.kept:
            found.breaks(
                PREFIX,
                index,
                f"the journal holds {event.kept} events of {attempt}; number {event.agreeing} is "
                "not the one that was appended",
                attempt,
            )
        found.judged(DURABLE)
        if event.kept < event.due:
            found.breaks(
                DURABLE,
                index,
                f"the journal holds {event.kept} of {event.appended} events of {attempt}; it had "
                f"time and room for {event.due}",
                attempt,
            )
        if not event.open:
            return
        found.judged(ONE_OPEN)
        trajectory = trajectory_of(attempt)
        other = self._open.setdefault(trajectory, attempt)
        if other != attempt or event.complete:
            why = f"beside that of {other}" if other != attempt else "and its group is complete"
            found.breaks(ONE_OPEN, index, f"the log of {attempt} is open {why}", attempt, other)
        goes_on = not (event.ended or event.given_up)
        if self.planned.stateful and goes_on and event.kept == event.appended:
            self._in_flight[attempt] = index

    def _fault(self, _index: int, event: Fault) -> None:
        self._full += event.kind == DISK_FULL

    def _fault_ended(self, _index: int, event: FaultEnded) -> None:
        self._full -= event.kind == DISK_FULL

    def _acknowledged(self, _index: int, _event: Acknowledged) -> None:
        if self._full:
            self.findings.judged(FREES)

    def _refused(self, index: int, event: LearnerRefused) -> None:
        if (event.method, event.reason) == ("AckGroups", "DISK_FULL"):
            self.findings.breaks(FREES, index, "an acknowledgement was refused: the disk is full")

    def _room_again(self, index: int, event: RoomAgain) -> None:
        self.findings.judged(ROOM)
        if event.full:
            self.findings.breaks(
                ROOM,
                index,
                f"the disk has had room for {event.seconds:g} s, and the engine waits for room",
            )

    def _opened(self, _index: int, event: SessionOpened) -> None:
        attempt = attempt_of_session(event.session)
        self._newest[attempt] = event.session
        self._shut.discard(attempt)

    def _closed(self, index: int, event: SessionClosed) -> None:
        attempt = attempt_of_session(event.session)
        if not event.by_engine or self._newest.get(attempt) != event.session:
            return
        self._shut.add(attempt)
        if self._stopped and attempt in self._in_flight:
            self._closed_early(index, attempt)

    def _closed_early(self, index: int, attempt: str) -> None:
        self.findings.breaks(
            SESSIONS_STAY,
            index,
            f"the engine stopped and closed {self._newest.get(attempt)}; {attempt} is in flight",
            attempt,
            self._newest.get(attempt, ""),
        )
