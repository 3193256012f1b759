"""Published sets as a recipe's task source, in a function of yours:

    from pathlib import Path
    from tasks.sources import endless, once

    HERE = Path(__file__).parent

    def training(seed):
        return endless("search_r1", HERE / "train.parquet", seed)

    def heldout(seed):
        return once("hotpotqa", HERE / "test.jsonl")

and `source = "./task.py:training"`. A file that `tasks convert` wrote can stand there instead; the
engine then shuffles all of it, and hands images over.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import count, islice
from pathlib import Path

import structlog

from tasks.errors import TaskFault
from tasks.record import Record
from tasks.sets import Reading
from toolwright.types import Task

log = structlog.get_logger("tasks")

WINDOW = 4096
"""Records that are shuffled among themselves: all that are in memory."""


def endless(
    name: str,
    path: Path,
    seed: int,
    *,
    gold: Path | None = None,
    question_marks: bool = False,
) -> Iterator[Task]:
    """A set's tasks again and again, each pass in another order, which depends on the seed alone.

    A window moves over the files: a task stands at most 4096 places before the place that it has
    there. Raises TaskFault for a set with images, and all that Reading raises.
    """
    reading = Reading(name, path, gold=gold, question_marks=question_marks)
    for epoch in count():
        drawn = random.Random(f"{seed}.{epoch}")
        for record in _shuffled(iter(reading), drawn):
            yield _task(record)
        if epoch == 0:
            _warn(reading)


def once(
    name: str,
    path: Path,
    *,
    gold: Path | None = None,
    heldout: bool = False,
    question_marks: bool = False,
) -> Iterator[Task]:
    """A set's tasks, one after the other as they stand there: for an evaluation suite."""
    reading = Reading(name, path, gold=gold, heldout=heldout, question_marks=question_marks)
    for record in reading:
        yield _task(record)
    _warn(reading)


def _warn(reading: Reading) -> None:
    """Once the files are read to their end, of what was rejected."""
    if reading.rejected:
        log.warning("rows were rejected", set=reading.layout.name, why=reading.why_rejected())


def _shuffled(records: Iterator[Record], drawn: random.Random) -> Iterator[Record]:
    held = list(islice(records, WINDOW))
    for record in records:
        place = drawn.randrange(len(held))
        yield held[place]
        held[place] = record
    drawn.shuffle(held)
    yield from held


def _task(record: Record) -> Task:
    if record.images:
        raise TaskFault(
            f"{record.data_source} has images, which a function cannot hand over: write a file "
            "with `tasks convert`, and name that as the source"
        )
    return record.as_task()
