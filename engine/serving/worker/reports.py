"""The numbered reports of a worker to the coordinator.

Invariants
- Everything is reported once, in order: the events of an attempt before its record, and the records
  of a group before its end.
- Events of one append are in one row, so a crash leaves all of them or none.
- A report is kept until the coordinator calls it durable. `unconfirmed` are sent again on a new
  connection.
- A tool session is reported before its service can report it twice as unknown; see `Leases`.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import structlog

from engine.core.images.media import Media
from engine.core.tools.services import ToolServices
from engine.core.trajectory.events import AnyEvent, encode
from engine.errors import AttemptFailed
from toolwright import wire
from toolwright.crew.v1 import crew_pb2 as pb
from toolwright.rpc.options import MESSAGE_LIMIT

REPORT_BYTES = 4 << 20
"""Size at which a report is closed and the next begins. One row or record may exceed it."""
MOST_ROW = MESSAGE_LIMIT - 2 * REPORT_BYTES
"""Size of the largest row or record. The rest of a message is for the parts beside it."""

log = structlog.get_logger("worker")


class Reports:
    """The reports of one life. `due` is called as soon as there is something to report."""

    def __init__(self, due: Callable[[bool], None]) -> None:
        """due: called with whether a report must leave soon: work waits for it."""
        self._due = due
        self._log: list[tuple[str, Sequence[AnyEvent] | None, Sequence[Media]]] = []
        self._unlogged: set[str] = set()
        self._rest = pb.Report()
        """All but rows, sessions and members."""
        self._members: list[pb.Member] = []
        self._sessions: dict[tuple[str, str], str] = {}
        """Reported tool sessions, (service, id), and their endpoints."""
        self.sequence = 0
        self.unconfirmed: deque[pb.Report] = deque()

    def append(self, attempt: str, events: Sequence[AnyEvent], blobs: Sequence[Media] = ()) -> None:
        """The keeper of all attempts. Raises AttemptFailed for blobs that no message can hold."""
        size = sum(len(one.data) for one in blobs)
        if size > MOST_ROW:
            raise AttemptFailed(
                f"images of {size} bytes came together, and a worker reports at most {MOST_ROW}: "
                "lower limits.image_bytes, or have the tools show fewer images a turn",
                permanent=True,
            )
        self._log.append((attempt, events, blobs))
        self._due(False)

    def forget(self, attempt: str) -> None:
        """Reports that an attempt is given up."""
        self._log.append((attempt, None, ()))
        self._due(False)

    def happened(self, kind: str, **data: Any) -> None:
        """Reports an event for WatchEvents."""
        self._rest.events.append(pb.FeedEvent(kind=kind, data_json=json.dumps(data)))
        self._due(False)

    def places(self, assignment: int, freed: int, wanted: int) -> None:
        """Reports places that a group gave back, and further ones that it waits for."""
        change = pb.PlaceChange(assignment=assignment, freed=freed, wanted=wanted)
        self._rest.places.append(change)
        self._due(True)

    def queued(self, assignment: int) -> None:
        """Reports that all members of a group are done, have a place, or wait for one."""
        self._rest.queued.append(assignment)
        self._due(True)

    def sampled(self, assignment: int) -> None:
        """Reports that a row of an evaluation needs no sampler any more."""
        self._rest.sampled.append(assignment)
        self._due(True)

    def ended(
        self,
        assignment: int,
        members: Iterable[pb.Member] = (),
        *,
        unfit: str = "",
        defect: str = "",
    ) -> None:
        """Reports the end of an assignment, with its members."""
        self._members.extend(members)
        ended = pb.Ended(assignment=assignment, unfit=unfit, defect=defect)
        self._rest.ended.append(ended)
        self._due(True)

    def close(self, tools: ToolServices | None) -> list[pb.Report]:
        """Numbers what has happened since the last call. The reports to send, in order."""
        reports, size = [pb.Report()], 0

        def add(field: str, part: Any) -> None:
            nonlocal size
            if size >= REPORT_BYTES:
                reports.append(pb.Report())
                size = 0
            getattr(reports[-1], field).append(part)
            size += part.ByteSize()

        for row in self._rows():
            add("rows", row)
        for change in self._session_changes(tools):
            add("sessions", change)
        for member in self._members:
            add("members", member)
        self._members = []
        reports[-1].MergeFrom(self._rest)
        self._rest = pb.Report()
        found = [report for report in reports if report.ByteSize()]
        for report in found:
            self.sequence += 1
            report.sequence = self.sequence
        self.unconfirmed.extend(found)
        return found

    def confirmed(self, sequence: int) -> None:
        """The coordinator has everything up to a number on disk."""
        while self.unconfirmed and self.unconfirmed[0].sequence <= sequence:
            self.unconfirmed.popleft()

    def _rows(self) -> list[pb.LogRow]:
        rows: list[pb.LogRow] = []
        together: dict[str, tuple[list[AnyEvent], list[Media]]] = {}
        for attempt, events, blobs in self._log:
            if events is None:
                rows += self._encoded(together)
                together = {}
                rows.append(pb.LogRow(attempt=attempt, given_up=True))
                continue
            if blobs and attempt in together:  # together they might exceed a message
                rows += self._encoded(together)
                together = {}
            all_events, all_blobs = together.setdefault(attempt, ([], []))
            all_events += events
            all_blobs += blobs
        self._log = []
        return [*rows, *self._encoded(together)]

    def _encoded(
        self, together: dict[str, tuple[list[AnyEvent], list[Media]]]
    ) -> Iterable[pb.LogRow]:
        for attempt, (events, blobs) in together.items():
            if attempt in self._unlogged:
                continue
            data, why = b"", ""
            try:
                data = encode(events)
            except (TypeError, ValueError, OverflowError, RecursionError) as error:
                why = repr(error)
            size = len(data) + sum(len(one.data) for one in blobs)
            if size > MOST_ROW:
                why = f"its events and images of {size} bytes exceed a message"
            if why:
                log.warning("attempt_not_logged", attempt=attempt, error=why)
                self._unlogged.add(attempt)
                yield pb.LogRow(attempt=attempt, given_up=True)
                continue
            sent = [pb.Blob(ref=wire.blob_to_proto(one.blob), data=one.data) for one in blobs]
            yield pb.LogRow(attempt=attempt, events=data, blobs=sent)

    def _session_changes(self, tools: ToolServices | None) -> Iterable[pb.SessionChange]:
        if tools is None:
            return
        now: dict[tuple[str, str], str] = {}
        for name, service in tools.services.items():
            for session_id in sorted(service.known | service.sessions.keys()):
                held = service.sessions.get(session_id)
                now[name, session_id] = held.address if held is not None else ""
        for key, endpoint in now.items():
            if self._sessions.get(key) != endpoint:
                name, session_id = key
                yield pb.SessionChange(service=name, session_id=session_id, endpoint=endpoint)
        for name, session_id in sorted(self._sessions.keys() - now.keys()):
            yield pb.SessionChange(service=name, session_id=session_id, gone=True)
        self._sessions = now
