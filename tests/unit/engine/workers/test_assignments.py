"""The assignments in progress on a worker."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import pytest

from engine.errors import Fenced
from engine.serving.worker.assignments import Assignments
from engine.serving.worker.reports import Reports
from tests.support.waiting import until
from toolwright import wire
from toolwright.crew.v1 import crew_pb2 as pb
from toolwright.types import Task

pytestmark = pytest.mark.quick


async def no_blob(_sha256: str) -> None:
    return None


@dataclass(frozen=True)
class Gone:
    """A crew whose work has gone to another worker."""

    fence: int = 0

    async def run_group(self, _group: object) -> None:
        raise Fenced("tools.python: FENCED")


async def test_a_fenced_assignment_is_reported_as_a_defect() -> None:
    """The coordinator drops the report if another worker has the work, and waits for no end."""
    reports = Reports(lambda _soon: None)
    assignments = Assignments({"": Gone()}, reports, no_blob)  # type: ignore[dict-item]
    task = wire.task_to_proto(Task(id="t"))
    assignments.begin(pb.Assignment(id=1, task=task, group=pb.Group(group_id="g", size=1)))
    await until(lambda: not assignments.running, "the assignment's end")
    (report,) = reports.close(None)
    (ended,) = report.ended
    assert (ended.assignment, ended.defect) == (1, "Fenced: tools.python: FENCED")


async def test_an_assignment_that_a_new_stream_repeats_is_begun_once() -> None:
    reports = Reports(lambda _soon: None)
    assignments = Assignments({"": Gone()}, reports, no_blob)  # type: ignore[dict-item]
    task = wire.task_to_proto(Task(id="t"))
    for number in (3, 7, 3, 7, 9):
        assignments.begin(pb.Assignment(id=number, task=task, group=pb.Group(group_id="g", size=1)))
    await until(lambda: not assignments.running, "the assignments' ends")
    (report,) = reports.close(None)
    assert [one.assignment for one in report.ended] == [3, 7, 9]


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


@dataclass(frozen=True)
class Endless:
    """A crew that rolls out for ever."""

    fence: int = 0

    async def run_group(self, _group: object) -> None:
        await asyncio.Event().wait()


async def test_a_cut_ends_an_assignment_and_the_end_is_reported_also_if_it_never_came() -> None:
    reports = Reports(lambda _soon: None)
    assignments = Assignments({"": Endless()}, reports, no_blob)  # type: ignore[dict-item]
    task = wire.task_to_proto(Task(id="t"))
    assignments.begin(pb.Assignment(id=1, task=task, group=pb.Group(group_id="g", size=1)))
    for number in (1, 2):
        assignments.cut(number)
    await until(lambda: not assignments.running, "the assignment's end")
    (report,) = reports.close(None)
    assert {one.assignment for one in report.ended} == {1, 2}
