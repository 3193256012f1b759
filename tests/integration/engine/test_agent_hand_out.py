"""Hand-out of trajectories to workers that start agents themselves: tasks, lives, ends."""

from __future__ import annotations

import asyncio

import pytest

from tests.integration.engine.conftest import MakeWorld
from tests.integration.engine.outside_runs import leased, served
from tests.support.ingress_client import IngressClient
from tests.support.recipes import PAIR
from tests.support.waiting import PATIENCE, until
from toolwright import wire
from toolwright.common.v1 import reasons_pb2 as reasons
from toolwright.ingress.v1 import ingress_pb2 as pb
from toolwright.rpc.channel import call
from toolwright.rpc.errors import ServiceError

pytestmark = pytest.mark.quick

STARTED = {"agent": {"kind": "command", "command": ["true"], "sandbox": "none"}}


async def take(client: IngressClient, life: str, number: int, wait: float) -> pb.TakeResponse:
    request = pb.TakeRequest(
        worker="host", life=life, number=number, wait=wire.duration(wait), tasks=[""]
    )
    taken: pb.TakeResponse = await call(client.stub.Take, request, timeout=2 * PATIENCE)
    return taken


async def hold(client: IngressClient, life: str, *keys: str) -> list[str]:
    request = pb.HoldRequest(worker="host", life=life, keys=keys)
    return list((await call(client.stub.Hold, request, timeout=PATIENCE)).ended)


async def test_an_attempt_of_a_life_ends_with_it(world: MakeWorld) -> None:
    here = await world()
    async with served(here, task=STARTED) as (run, client):
        assert not (await client.take(wait=0.05)).key  # it takes those of external agents
        first = await take(client, "one", 1, PATIENCE)
        assert await take(client, "one", 1, PATIENCE) == first
        assert await hold(client, "one", first.key, "tw-none.none") == ["tw-none.none"]
        assert await hold(client, "two", first.key) == []
        second = await take(client, "two", 1, PATIENCE)
        assert second.trajectory_id == first.trajectory_id
        assert second.attempt != first.attempt
        assert await hold(client, "two", first.key, second.key) == [first.key]
        with pytest.raises(ServiceError) as refused:
            await hold(client, "one")
        assert refused.value.reason == reasons.ERROR_REASON_NOT_OWNER
        await client.talk(second.key, ["q"])
        await client.end(second.key, needs_calls=True, output="o" * 20_000)
        trajectory = await leased(run)
    assert trajectory.attempt == 1
    (note,) = [one for one in trajectory.events if one.kind == "agent_output"]
    assert len(note.data["output"]) == 1 << 14


async def test_an_agent_without_a_model_call_gets_another_attempt(world: MakeWorld) -> None:
    here = await world()
    async with served(here) as (run, client):
        first = await client.take()
        assert await client.end(first.key, needs_calls=True, error="exit code 1") == 0
        second = await client.take(2)
        await client.talk(second.key, ["q"])
        await client.end(second.key, pb.OUTCOME_FAILED, needs_calls=True, error="exit code 1")
        trajectory = await leased(run)
    assert trajectory.attempt == 1
    assert [one.data["error"] for one in trajectory.events if one.kind == "agent_failed"] == [
        "exit code 1"
    ]


async def test_a_drain_waits_for_no_attempt_that_no_agent_has_taken(world: MakeWorld) -> None:
    here = await world()
    pair = {"run": PAIR, "engine": {"drain_s": 600.0}}
    async with served(here, **pair) as (run, client):
        first = await client.take(1)
        await until(lambda: run.engine._agents.waiting == 1, "the other member")  # type: ignore[union-attr]
        draining = asyncio.create_task(run.drain())
        await until(lambda: run.engine._agents.waiting == 0, "its return")  # type: ignore[union-attr]
        with pytest.raises(ServiceError) as stops:
            await client.take(2)
        assert stops.value.reason == reasons.ERROR_REASON_DRAINING
        await client.talk(first.key, ["q"])
        assert not draining.done()
        await client.end(first.key)
        await asyncio.wait_for(draining, PATIENCE)
    async with served(here, **pair) as (run, client):
        second = await client.take(2)
        await client.talk(second.key, ["q"])
        await client.end(second.key)
        (group,) = await run.learner.lease(run.version)
    assert [len(one.sequences) for one in group.members] == [1, 1]
    assert len(here.sampler.requests) == 2


async def test_a_run_that_is_over_hands_out_nothing(world: MakeWorld) -> None:
    here = await world()
    async with served(here) as (run, client):
        taken = await client.take(1)
        waiting = asyncio.create_task(client.take(2))
        await client.talk(taken.key, ["q"])
        await client.end(taken.key)
        assert not waiting.done()
        await leased(run)
        await run.learner.publish(run.at(1), here.weights("1"))
        assert (await client.take(3)).over
        await run.drain()
        assert (await waiting).over
