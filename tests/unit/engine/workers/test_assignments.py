"""The assignments in progress on a worker."""

from __future__ import annotations

import asyncio

import pytest

from engine.serving.worker.assignments import Assignments
from engine.serving.worker.reports import Reports
from toolwright import wire
from toolwright.crew.v1 import crew_pb2 as pb
from toolwright.types import Task

pytestmark = pytest.mark.quick


async def no_blob(_sha256: str) -> None:
    return None


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
