"""Submitted tasks: journaled once, refused with a reason, admitted in their order."""

from __future__ import annotations

import asyncio
import math
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from engine.serving.admission import submitted
from engine.serving.admission.submitted import Submissions, SubmittedTasks
from engine.serving.journal.journal import Journal
from engine.serving.journal.reader import reading
from tests.support.waiting import until
from tests.unit.engine.test_mixed_lane import mixed
from tests.unit.engine.test_scheduler import Lane, Positions
from toolwright import wire
from toolwright.common.v1 import reasons_pb2 as reasons
from toolwright.common.v1 import trajectory_pb2
from toolwright.rpc.errors import ServiceError
from toolwright.types import Purpose, SamplingParams, Task

TASK = Task(id="a", prompt="what is 1+1?", answers=("2",), metadata={"number": 1})


@pytest.fixture
async def journal(tmp_path: Path) -> AsyncIterator[Journal]:
    opened = Journal(tmp_path / "journal.sqlite")
    yield opened
    await opened.close()


def submissions(journal: Journal, *names: str, fixed: str = "") -> Submissions:
    """Of tasks with these names, whose questions clients submit, and one with a file."""
    sources = {name: SubmittedTasks(lambda: journal, name) for name in names or ("",)}
    return Submissions(journal, {**sources, **({fixed: None} if fixed else {})})


async def submit(to: Submissions, *tasks: Task) -> int:
    return await to.submit([wire.task_to_proto(task) for task in tasks])


async def test_a_task_is_stored_once_and_read_as_it_came(journal: Journal) -> None:
    to, source = submissions(journal), SubmittedTasks(lambda: journal, "")
    second = replace(TASK, id="b", prompt="", messages=({"role": "user", "content": "hello"},))
    assert await submit(to, TASK) == 1
    assert await submit(to, TASK, second, second) == 1
    assert [source.has(position) for position in range(3)] == [True, True, False]
    assert [(await source.at(position)).task for position in range(2)] == [TASK, second]


async def test_a_later_life_has_the_tasks_of_the_earlier_one(tmp_path: Path) -> None:
    for life in range(2):
        journal = Journal(tmp_path / "journal.sqlite")
        assert await submit(submissions(journal), TASK) == (0 if life else 1)
        source = SubmittedTasks(lambda journal=journal: journal, "")
        assert (await source.at(0)).task == TASK
        await journal.close()


async def test_another_task_under_a_known_id_is_refused_and_nothing_is_stored(
    journal: Journal,
) -> None:
    to = submissions(journal)
    await submit(to, TASK)
    with pytest.raises(ServiceError) as refused:
        await submit(to, replace(TASK, id="b"), replace(TASK, prompt="another"))
    assert refused.value.reason == reasons.ERROR_REASON_CALL_ID_REUSED
    assert refused.value.subject == "a"
    assert journal.submitted == {"": 1}


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"id": ""}, "id has 1 to"),
        ({"prompt": ""}, "neither a prompt nor messages"),
        ({"purpose": Purpose.EVAL}, "is for evaluation"),
        ({"name": "art"}, "no task 'art', it has math, sql"),
        ({"name": "sql"}, "the tasks come from tasks.sql.source"),
        ({"messages": ({"content": "no role"},), "prompt": ""}, "cannot be used"),
        ({"sampling": SamplingParams(temperature=-1.0)}, r"sampling\.temperature = -1\.0"),
        ({"sampling": SamplingParams(top_p=math.nan)}, r"sampling\.top_p = nan"),
    ],
)
async def test_a_task_that_cannot_be_used_is_refused(
    journal: Journal, changes: dict[str, Any], why: str
) -> None:
    to = submissions(journal, "math", fixed="sql")
    with pytest.raises(ServiceError, match=why) as refused:
        math = replace(TASK, name="math")
        await submit(to, replace(math, id="b"), replace(math, **changes))
    assert refused.value.reason == reasons.ERROR_REASON_INVALID_REQUEST
    assert not journal.submitted


async def test_a_message_that_no_client_of_ours_writes_is_refused(journal: Journal) -> None:
    broken = trajectory_pb2.Task(id="a", prompt="q", metadata_json="[")
    with pytest.raises(ServiceError, match="cannot be used"):
        await submissions(journal).submit([broken])


async def test_tasks_beyond_the_room_are_refused_until_some_are_admitted(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(submitted, "MOST_WAITING", 2)
    source = SubmittedTasks(lambda: journal, "")
    to = Submissions(journal, {"": source})
    await submit(to, TASK, replace(TASK, id="b"))
    with pytest.raises(ServiceError) as full:
        await submit(to, replace(TASK, id="c"))
    assert full.value.reason == reasons.ERROR_REASON_QUEUE_LIMIT
    assert full.value.passes
    await source.at(0)
    assert await submit(to, replace(TASK, id="c")) == 1
    assert to.waiting == 2


async def test_the_lane_admits_what_was_submitted_within_the_bound(journal: Journal) -> None:
    source = SubmittedTasks(lambda: journal, "")
    to, made = Submissions(journal, {"": source}), Lane(journal, source=source)
    async with made.serving():
        await made.settled(0)
        assert made.lane.waits_for_task
        await submit(to, TASK)
        await made.settled(1)
        await submit(to, *(replace(TASK, id=f"t{number}") for number in range(8)))
        await made.settled(4)
        assert not made.lane.waits_for_task
        made.finish.set()
        made.lane.changed(1)
        await made.settled(8)
        assert to.waiting == 1


async def test_an_unfit_task_is_skipped_and_never_ends_the_run(
    journal: Journal, tmp_path: Path
) -> None:
    source = SubmittedTasks(lambda: journal, "")
    to = Submissions(journal, {"": source})
    made = Lane(journal, source=source, max_bad_rows=0, unfit=(0, 1))
    await submit(to, *(replace(TASK, id=f"t{number}") for number in range(3)))
    async with made.serving():
        await made.settled(3)
    with reading(tmp_path) as reader:
        assert [position for position, _ in reader.skipped()] == [0, 1]


async def test_a_journal_of_an_engine_before_submissions_is_used(tmp_path: Path) -> None:
    file = tmp_path / "journal.sqlite"
    await Journal(file).close()
    with closing(sqlite3.connect(file)) as db:
        db.execute("DROP TABLE submitted")
    with reading(tmp_path) as reader:
        assert reader.counts().accepted == 0
    journal = Journal(file)
    assert await submit(submissions(journal), TASK) == 1
    await journal.close()


async def test_other_tasks_wait_for_the_one_that_lacks_questions(journal: Journal) -> None:
    sql = SubmittedTasks(lambda: journal, "sql")
    made = mixed(journal, sources={"math": Positions(), "sql": cast("Any", sql)})
    running = asyncio.create_task(made.lane.run())
    await until(lambda: made.lane.waits_for_task, "the lane to wait")
    assert made.asked == ["math"]
    to = Submissions(journal, {"math": Positions(), "sql": sql})
    await submit(to, replace(TASK, name="sql"))
    await until(lambda: len(made.asked) == 3, "the batch")
    assert sorted(made.asked) == ["math", "math", "sql"]
    made.lane.drain()
    await running
