"""A worker's reports: in order, whole, and kept until they are durable."""

from __future__ import annotations

import pytest

from engine.core.images.media import media_of
from engine.core.trajectory.events import Ended, Noted, decode
from engine.errors import AttemptFailed
from engine.serving.worker import reports as module
from engine.serving.worker.reports import Reports
from toolwright.crew.v1 import crew_pb2 as pb
from toolwright.types import Event, StopReason

pytestmark = pytest.mark.quick

ENDED = Ended(reason=StopReason.ANSWERED)


def note(word: str) -> Noted:
    return Noted(note=Event(kind=word, turn=0, data={}))


def made() -> tuple[Reports, list[bool]]:
    due: list[bool] = []
    return Reports(due.append), due


def test_events_of_one_attempt_are_one_row_and_a_given_up_attempt_stays_in_order() -> None:
    reports, due = made()
    picture = media_of(b"bytes", "image/png")
    reports.append("a/1", [note("x")])
    reports.append("b/1", [note("y")], [picture])
    reports.append("a/1", [note("z"), ENDED])
    reports.forget("a/1")
    reports.append("a/2", [ENDED])
    (report,) = reports.close(None)
    rows = [(row.attempt, row.given_up) for row in report.rows]
    assert rows == [("a/1", False), ("b/1", False), ("a/1", True), ("a/2", False)]
    assert decode(report.rows[0].events) == [note("x"), note("z"), ENDED]
    (blob,) = report.rows[1].blobs
    assert (blob.data, blob.ref.sha256) == (picture.data, picture.blob.sha256)
    assert due == [False] * 5
    assert reports.close(None) == []


def test_reports_are_kept_until_they_are_durable() -> None:
    reports, _ = made()
    for word in "xyz":
        reports.append("a/1", [note(word)])
        reports.close(None)
    assert [one.sequence for one in reports.unconfirmed] == [1, 2, 3]
    reports.confirmed(2)
    assert [one.sequence for one in reports.unconfirmed] == [3]
    reports.confirmed(1)
    assert [one.sequence for one in reports.unconfirmed] == [3]


def test_a_large_report_is_split_and_the_end_comes_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "REPORT_BYTES", 100)
    reports, due = made()
    reports.append("a/1", [note("x" * 80)])
    reports.append("b/1", [note("x" * 80)])
    members = [pb.Member(assignment=7, record=b"r" * 90), pb.Member(assignment=7, record=b"s")]
    reports.ended(7, members)
    split = reports.close(None)
    assert len(split) > 2
    assert [row.attempt for one in split for row in one.rows] == ["a/1", "b/1"]
    assert [member.record[:1] for one in split for member in one.members] == [b"r", b"s"]
    assert [bool(one.ended) for one in split] == [False] * (len(split) - 1) + [True]
    assert due[-1], "the coordinator waits for an end"


def test_images_that_no_message_holds_end_their_attempt(monkeypatch: pytest.MonkeyPatch) -> None:
    """A row above the limit would break each new stream."""
    monkeypatch.setattr(module, "MOST_ROW", 2000)
    picture = media_of(b"b" * 1100, "image/png")
    reports, _ = made()
    with pytest.raises(AttemptFailed, match=r"limits\.image_bytes") as found:
        reports.append("a/1", [note("x")], [picture, picture])
    assert found.value.permanent
    for word in "xy":
        reports.append("b/1", [note(word)], [picture])
    reports.append("c/1", [note("z" * 2000)])
    rows = [row for report in reports.close(None) for row in report.rows]
    assert [(row.attempt, row.given_up) for row in rows] == [
        ("b/1", False),
        ("b/1", False),
        ("c/1", True),
    ]
    assert max(row.ByteSize() for row in rows) < 2000


def test_an_event_that_cannot_be_encoded_costs_its_attempts_log_alone() -> None:
    """As in the journal of an engine without workers: the trajectory goes on, unlogged."""
    reports, _ = made()
    bad = Noted(note=Event(kind="odd", turn=0, data={"value": object()}))
    reports.append("a/1", [bad])
    reports.append("b/1", [ENDED])
    (report,) = reports.close(None)
    assert [(row.attempt, row.given_up) for row in report.rows] == [("a/1", True), ("b/1", False)]
    reports.append("a/1", [ENDED])
    assert reports.close(None) == []
