"""The assignments in progress on a worker."""

from __future__ import annotations

import asyncio

import pytest

from engine.core.images.media import media_of
from engine.serving.worker.assignments import Assignments
from engine.serving.worker.reports import Reports
from tests.support.waiting import until
from toolwright import wire
from toolwright.crew.v1 import crew_pb2 as pb
from toolwright.types import Task

pytestmark = pytest.mark.quick


async def no_blob(_sha256: str) -> None:
    return None


async def test_a_new_stream_ends_assignments_that_the_coordinator_has_cut() -> None:
    """The message that cut one was lost with the stream before."""
    reads: list[str] = []

    async def no_answer(sha256: str) -> None:
        reads.append(sha256)
        await asyncio.Event().wait()

    assignments = Assignments({}, Reports(lambda _soon: None), no_answer)
    media = [wire.blob_to_proto(media_of(b"bytes", "image/png").blob)]
    for number in (1, 2):
        assignments.begin(pb.Assignment(id=number, media=media, row=pb.EvaluationRow()))
    await until(lambda: len(reads) == 2, "both at work")
    assignments.keep([2, 3])
    await until(lambda: assignments.running == 1, "the end of the first")
    await assignments.stop()


async def test_a_defect_in_a_group_is_reported_by_its_own_message() -> None:
    due = asyncio.Event()
    reports = Reports(lambda _soon: due.set())
    assignments = Assignments({}, reports, no_blob)
    message = pb.Assignment(
        id=1,
        recipe_task="unknown",
        task=wire.task_to_proto(Task(id="t")),
        group=pb.Group(group_id="g", size=1),
    )
    assignments.begin(message)
    async with asyncio.timeout(10):
        await due.wait()
    (report,) = reports.close(None)
    assert [(one.assignment, one.defect) for one in report.ended] == [(1, "KeyError: 'unknown'")]
