"""The coordinator's side of a worker: what a new stream repeats, and what stays of the dead."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.core.tools.link.counts import ServiceStatistics
from engine.serving.crew.statistics import WorkerStatistics
from engine.serving.crew.worker_link import WorkerLink
from toolwright.crew.v1 import crew_pb2 as pb

pytestmark = pytest.mark.quick


def cuts_of_a_new_stream(link: WorkerLink) -> list[int]:
    outbox = link.attach([])
    messages = [outbox.get_nowait() for _ in range(outbox.qsize())]
    return [one.cut.assignment for one in messages if one is not None and one.HasField("cut")]


async def test_a_cut_that_was_lost_with_its_stream_is_sent_again_until_the_end_is_reported() -> (
    None
):
    link = WorkerLink("w1", Path("log"), pb.Setup())
    link.cut(7)
    assert cuts_of_a_new_stream(link) == [7]
    assert cuts_of_a_new_stream(link) == [7]
    assert link.ended(7) is None
    assert cuts_of_a_new_stream(link) == []


def test_the_dead_are_one_sum() -> None:
    one = WorkerStatistics(
        samplers={"s": {"in_flight": 0, "queued": 0, "received": 5, "seconds_a_token": None,
                        "failures": {"cut": 1}}},
        tools={"t": ServiceStatistics(open_sessions=0, calls_in_flight=0, opens_waiting=0, calls=3,
                                      retries={}, failures={"INTERNAL": 1}, seconds_away=0.5)},
        attempts={"session_lost": 2},
    )  # fmt: skip
    both = WorkerStatistics().plus(one).plus(one)
    assert both.samplers["s"]["received"] == 10
    assert both.samplers["s"]["failures"] == {"cut": 2}
    assert (both.tools["t"].calls, both.tools["t"].failures) == (6, {"INTERNAL": 2})
    assert both.attempts == {"session_lost": 4}
