"""The intake of workers' reports: journal, tool sessions, places, events, and ends of assignments.

Invariants
- Each report is taken once, in the order of its numbers.
- A report is confirmed after the journal has committed its rows.
"""

from __future__ import annotations

import json

from engine.core.images.media import Media
from engine.errors import TaskUnfit
from engine.serving.crew.session_mirror import SessionMirror
from engine.serving.crew.worker_link import RemoteMember, WorkerDefect, WorkerLink
from engine.serving.journal.journal import Journal
from engine.serving.telemetry.event_feed import Happened
from toolwright import wire
from toolwright.crew.v1 import crew_pb2 as pb


class ReportIntake:
    """Takes the reports of all workers of an engine."""

    def __init__(self, journal: Journal, mirror: SessionMirror, happened: Happened) -> None:
        self._journal = journal
        self._mirror = mirror
        self._happened = happened

    def take(self, link: WorkerLink, report: pb.Report) -> None:
        """Takes a report. A repeated one is ignored; after a gap the worker is lost."""
        link.news.set()
        if report.sequence <= link.received:
            return
        if report.sequence > link.received + 1:
            link.lose(f"report {report.sequence} came after report {link.received}")
            return
        link.received = report.sequence
        for row in report.rows:
            if row.given_up:
                self._journal.forget(row.attempt)
            else:
                blobs = [_media_of(blob) for blob in row.blobs]
                self._journal.append_encoded(row.attempt, row.events, blobs)
        for change in report.sessions:
            self._mirror.take(link.name, change)
        for place in report.places:
            one = link.assignments.get(place.assignment)
            if one is not None and one.grants is not None:
                one.grants.free(place.freed)
                one.grants.want(place.wanted)
        for event in report.events:
            self._happened(event.kind, **json.loads(event.data_json))
        for number in report.queued:
            if (one := link.assignments.get(number)) is not None:
                one.queued()
        for number in report.sampled:
            if (one := link.assignments.get(number)) is not None:
                one.sampled()
        for member in report.members:
            if (one := link.assignments.get(member.assignment)) is not None:
                one.members.append(
                    RemoteMember(attempt=member.attempt, serialized=member.record, why=member.why)
                )
        for ended in report.ended:
            self._take_end(link, ended)

    async def confirm(self, link: WorkerLink) -> None:
        """Confirms reports once they are durable. Runs until cancelled."""
        while True:
            await link.news.wait()
            link.news.clear()
            received = link.received
            await self._journal.committed()
            link.confirm(received)

    def _take_end(self, link: WorkerLink, ended: pb.Ended) -> None:
        one = link.ended(ended.assignment)
        if one is None or one.outcome.done():
            return
        if ended.defect:
            why = f"worker {link.name}: {ended.defect}; its log is {link.output}"
            one.outcome.set_exception(WorkerDefect(why))
        elif ended.unfit:
            one.outcome.set_exception(TaskUnfit(ended.unfit))
        else:
            one.outcome.set_result(one.members)


def _media_of(blob: pb.Blob) -> Media:
    return Media(blob=wire.blob_from_proto(blob.ref), data=blob.data)
