"""Clients submit the tasks of whole simulated runs, while engines, samplers and disks fail."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count
from random import Random
from typing import Any
from unittest import mock

import pytest

from bench.simulate.neighbours.engine_calls import EngineCalls
from bench.simulate.playing import play as playing
from bench.simulate.playing.one_run import Run
from bench.simulate.playing.play import Studio, studio
from bench.simulate.schedule import Kind, Schedule, schedule_of
from bench.simulate.verdict import outcome
from bench.simulate.workload import UNFIT, recipe
from engine.serving.journal.reader import reading
from engine.serving.journal.schema import open_read_only
from toolwright import wire
from toolwright.rollout.v1 import rollout_pb2 as rollout
from toolwright.rpc.errors import ServiceError, TransportError
from toolwright.types import Task

REPEATS = 0.2
"""Share of submissions that are sent again after their answer."""
UNFIT_TASKS = 0.1


@pytest.fixture(scope="module")
def place() -> Iterator[Studio]:
    with studio() as made:
        yield made


@dataclass
class Seen:
    """What the client and the journal know at the end of a run."""

    answered: list[str] = field(default_factory=list)
    """Ids of the tasks whose submission was answered, in order."""
    stored: list[str] = field(default_factory=list)
    """Ids in the journal, by position."""
    rolled_out: list[tuple[int, set[str]]] = field(default_factory=list)
    """(position, task ids of the members) of each group that the journal still holds."""


def played(place: Studio, schedule: Schedule) -> Seen:
    """Plays the schedule with submitted tasks. It breaks no promise."""
    seen = Seen()

    class SubmittingRun(Run):
        async def play(self) -> None:
            client = asyncio.create_task(submit(self))
            await super().play()
            client.cancel()
            await asyncio.gather(client, return_exceptions=True)
            look(self, seen)

    async def submit(run: Run) -> None:
        dice = Random(f"client {schedule.seed}")
        calls, numbers = EngineCalls(lambda: run._life), count()
        while True:
            tasks = [task(next(numbers), dice) for _ in range(dice.randint(1, 8))]
            request = rollout.SubmitTasksRequest(tasks=[wire.task_to_proto(one) for one in tasks])
            await answered(calls, request)
            seen.answered += [one.id for one in tasks]
            if dice.random() < REPEATS:
                again = await answered(calls, request)
                assert (again.accepted, again.known) == (0, len(tasks))
            await asyncio.sleep(dice.uniform(0.0, 0.5))

    def submitted_recipe(*args: Any, **named: Any) -> str:
        text = recipe(*args, **named)
        return text.replace('"bench.simulate.workload:questions"', '"submitted"')

    with (
        mock.patch.object(playing, "Run", SubmittingRun),
        mock.patch.object(playing, "recipe", submitted_recipe),
    ):
        found = outcome(place, schedule)
    assert found.failure is None, found.failure.text
    return seen


def task(number: int, dice: Random) -> Task:
    metadata = {UNFIT: True} if dice.random() < UNFIT_TASKS else {}
    return Task(id=f"t{number}", prompt=f"#{number}:", metadata=metadata)


async def answered(calls: EngineCalls, request: rollout.SubmitTasksRequest) -> Any:
    while True:
        try:
            return await calls.once(0, "SubmitTasks", request)
        except (ServiceError, TransportError):
            await asyncio.sleep(0.5)


def look(run: Run, seen: Seen) -> None:
    folder = run._recipe.run_folder
    db = open_read_only(folder / "journal.sqlite")
    found = db.execute("SELECT number, id FROM submitted ORDER BY number").fetchall()
    db.close()
    assert [number for number, _ in found] == list(range(len(found)))
    seen.stored = [name for _, name in found]
    with reading(folder) as reader:
        positions = {group.sequence: group.position for group in reader.numbered()}
        for members in reader.groups():
            ids = {member.trajectory().task.id for member in members}
            seen.rolled_out.append((positions[members[0].sequence], ids))


def check(place: Studio, seeds: range) -> None:
    kills = groups = 0
    for seed in seeds:
        schedule = schedule_of(seed)
        seen = played(place, schedule)
        # A submission that a kill cut may be stored without its answer.
        assert seen.stored[: len(seen.answered)] == seen.answered
        assert len(set(seen.stored)) == len(seen.stored)
        assert all(ids == {seen.stored[position]} for position, ids in seen.rolled_out)
        kills += sum(fault.kind is Kind.ENGINE_KILL for fault in schedule.faults)
        groups += len(seen.rolled_out)
    assert kills
    assert groups


def test_submitted_tasks_are_rolled_out_once_in_their_order(place: Studio) -> None:
    check(place, range(4))


@pytest.mark.slow
def test_so_they_are_whatever_fails(place: Studio) -> None:
    check(place, range(4, 44))
