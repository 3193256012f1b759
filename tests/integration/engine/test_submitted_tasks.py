"""Programs beside the learner: they submit tasks, follow events, and read evaluations."""

from __future__ import annotations

import asyncio
import json
import signal
from asyncio.subprocess import PIPE
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bench.scripted import Timing
from engine.client import RolloutClient, WatchedEvent
from engine.errors import RequestFailed
from engine.offline.remote import tasks_of
from engine.serving.telemetry.event_feed import LIFE_BITS
from tests.integration.engine.conftest import MakeWorld, World
from tests.integration.engine.test_process import process
from tests.support.engines import finished, started
from tests.support.ingress_client import IngressClient
from tests.support.recipes import PAIR
from tests.support.waiting import until
from toolwright.rpc.channel import open_channel
from toolwright.types import Purpose, Task

SUBMITTED = {"task": {"source": "submitted"}}


def question(number: int, **changes: Any) -> Task:
    message = {"role": "user", "content": f"what is {number}+1?"}
    task = Task(id=f"t{number}", messages=(message,), answers=(str(number + 1),))
    return replace(task, metadata={"number": number}, **changes)


def client(here: World, patience: float = 60.0) -> RolloutClient:
    return RolloutClient(here.tables["run"]["engine"], patience=patience)


async def events_until(client: RolloutClient, kind: str, after: int = 0) -> list[WatchedEvent]:
    """Events up to the first one of a kind."""
    found = []
    async with asyncio.timeout(60), aclosing(client.watch(after)) as events:
        async for event in events:
            found.append(event)
            if event.kind == kind:
                break
    return found


async def collect(client: RolloutClient, found: list[WatchedEvent]) -> None:
    """Events from the oldest on, over restarts."""
    async with aclosing(client.watch()) as events:
        async for event in events:
            found.append(event)  # noqa: PERF401 (those so far are read meanwhile)


@pytest.mark.quick
async def test_submitted_tasks_are_trained_on_and_watched(world: MakeWorld) -> None:
    here = await world(run={**PAIR, "steps": 2}, **SUBMITTED)
    async with here.engine() as run, client(here) as beside:
        done = await beside.submit([question(0), question(0), question(1)])
        assert (done.accepted, done.known) == (2, 1)
        (group,) = await run.learner.lease(run.version)
        assert {member.task.id for member in group.members} == {"t0"}
        assert group.members[0].task.answers == ("1",)
        status = await run.learner.status()
        assert status.detail["waiting_tasks"] == 1  # the staleness bound holds
        seen = await events_until(beside, "stored")
        assert [event.kind for event in seen] == [
            "serving", "submitted", "admitted", *sorted(e.kind for e in seen[3:-1]), "stored",
        ]  # fmt: skip
        kinds = [event.kind for event in seen]
        assert (kinds.count("finished"), kinds.count("rewarded")) == (2, 2)
        rewarded = next(event for event in seen if event.kind == "rewarded")
        assert rewarded.data["task"] == "t0"
        await run.learner.publish(run.at(1), here.weights("next"))
        more = await events_until(beside, "stored", after=seen[-1].number)
        assert [event.data for event in more if event.kind == "published"]
        assert "t1" in [event.data.get("task") for event in more]


@pytest.mark.quick
async def test_an_outside_worker_takes_members_of_what_was_submitted(world: MakeWorld) -> None:
    """Beyond the staleness bound a worker finds no room, whatever waits."""
    task = {**SUBMITTED["task"], "agent": {}}
    here = await world(run=PAIR, task=task, engine={"drain_s": 0.05})
    async with (
        here.engine() as run,
        client(here) as beside,
        open_channel(here.tables["run"]["engine"]) as channel,
    ):
        worker = IngressClient(channel, here.codec)
        await beside.submit([question(0), question(1)])
        members = [await worker.take(number=number) for number in range(2)]
        assert [taken.task.id for taken in members] == ["t0", "t0"]
        assert not (await worker.take(number=2, wait=0.1)).key
        for taken in members:
            await worker.talk(taken.key, ["q"])
            await worker.end(taken.key, answer="1")
        (group,) = await run.learner.lease(run.version)
        assert {member.task.id for member in group.members} == {"t0"}


@pytest.mark.quick
async def test_a_recipe_with_a_source_refuses_tasks_and_says_why(world: MakeWorld) -> None:
    here = await world(run=PAIR)
    async with here.engine(), client(here) as beside:
        with pytest.raises(RequestFailed, match=r"tasks come from task\.source"):
            await beside.submit([question(0)])
        with pytest.raises(RequestFailed, match=r"set engine\.evaluation\.keep"):
            await beside.lease_evaluated(after=0, count=1, wait=0.1)


@pytest.mark.quick
async def test_a_reader_takes_evaluation_trajectories_and_the_learner_sees_none(
    world: MakeWorld,
) -> None:
    suite = {"name": "held out", "source": "task.py:short", "n": 3}
    evaluation = {"keep": 2, "suites": [suite]}
    here = await world(run=PAIR, engine={"evaluation": evaluation})
    async with here.engine() as run, client(here) as beside:
        await events_until(beside, "evaluated")
        first = await beside.lease_evaluated(after=0, count=1, wait=10.0)
        rest = await beside.lease_evaluated(after=0, count=9, wait=0.1)
        assert [group.sequence_number for group in rest] == [2, 3]  # the oldest one is gone
        assert first == rest[:1]
        for group in rest:
            (member,) = group.trajectories
            assert member.task.purpose is Purpose.EVAL
            assert member.reward == 1.0
        await beside.acknowledge_evaluated(2)
        left = await beside.lease_evaluated(after=0, count=9, wait=0.1)
        assert [group.sequence_number for group in left] == [3]
        with pytest.raises(RequestFailed, match="never leased"):
            await beside.acknowledge_evaluated(9)
        (trained,) = await run.learner.lease(run.version)
        assert all(member.task.purpose is Purpose.TRAIN for member in trained.members)


@pytest.mark.slow
async def test_a_kill_between_submission_and_completion_loses_nothing_and_doubles_nothing(
    world: MakeWorld, tmp_path: Path
) -> None:
    run = {"steps": 1, "groups_per_step": 4, "group_size": 2}
    slowly = Timing(tokens_per_second=16)
    here = await world(run=run, timing=slowly, engine={"max_concurrent": 2}, **SUBMITTED)
    file = tmp_path / "more.jsonl"
    rows = [{"id": f"t{n}", "prompt": f"what is {n}+1?", "answer": n + 1} for n in range(4)]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    address = here.tables["run"]["engine"]
    async with client(here) as beside:
        seen: list[WatchedEvent] = []
        watching = asyncio.create_task(collect(beside, seen))
        async with process(here) as (engine, _learner):
            code, out, error = await finished("submit", file, "--engine", address)
            assert (code, out) == (0, "4 tasks submitted, 0 known before\n"), error
            await until(lambda: "stored" in [event.kind for event in seen], "the first group")
            engine.send_signal(signal.SIGKILL)
            await engine.wait()
        assert len([event for event in seen if event.kind == "stored"]) < 4
        async with process(here) as (_engine, learner):
            again = await beside.submit(tasks_of(file, ""))
            assert (again.accepted, again.known) == (0, 4)
            groups = await learner.lease(count=4)
            assert sorted(group.members[0].task.id for group in groups) == ["t0", "t1", "t2", "t3"]
            assert (await learner.status()).detail["waiting_tasks"] == 0
            printing = await started("watch", "--engine", address, "--json", stdout=PIPE)
            assert printing.stdout is not None
            first = json.loads(await printing.stdout.readline())
            assert (first["kind"], first["number"]) == ("serving", (2 << LIFE_BITS) + 1)
            printing.terminate()
            assert await printing.wait() == 128 + signal.SIGTERM
            await until(lambda: sum(e.kind == "stored" for e in seen) >= 4, "the groups' events")
        watching.cancel()
    kinds = [event.kind for event in seen]
    assert kinds.count("serving") == 2
    assert "gap" in kinds
    assert [event.number for event in seen] == sorted(event.number for event in seen)
