"""How trajectories of outside agents end, and how they are rewarded, over real gRPC."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.integration.engine.conftest import MakeWorld
from tests.integration.engine.outside_runs import REPORTS, leased, served
from tests.support.recipes import PAIR
from tests.support.waiting import holds_for, passes, until
from toolwright.common.v1 import reasons_pb2 as reasons
from toolwright.common.v1 import trajectory_pb2
from toolwright.ingress.v1 import ingress_pb2 as pb
from toolwright.rpc.errors import ServiceError
from toolwright.types import StopReason

pytestmark = pytest.mark.quick


@pytest.mark.parametrize("reports", [True, False])
async def test_the_agent_reports_its_reward(world: MakeWorld, reports: bool) -> None:
    here = await world()
    async with served(here, task=REPORTS) as (run, client):
        taken = await client.take()
        await client.talk(taken.key, ["q"])
        if reports:
            part = trajectory_pb2.RewardPart(name="tests", value=0.25)
            await client.report(taken.reward_key, reward=0.5, parts=[part], node=0)
        with pytest.raises(ServiceError) as refused:
            await client.report(taken.key, reward=9.0)
        assert refused.value.reason == reasons.ERROR_REASON_NOT_OWNER
        await client.end(taken.key)
        trajectory = await leased(run)
    assert (trajectory.reward, trajectory.masked) == ((0.5, False) if reports else (0.0, True))
    assert [part.turn for part in trajectory.reward_parts] == ([0] if reports else [])


async def test_an_environment_rewards_after_the_agent_s_end_and_a_restart(
    world: MakeWorld,
) -> None:
    here = await world()
    calls_back: dict[str, Any] = {"agent": {"reward_from": "callback"}}
    async with served(here, task=calls_back) as (run, client):
        taken = await client.take()
        assert not taken.reward_key
        await client.talk(taken.key, ["q"])
        part = trajectory_pb2.RewardPart(name="tests", value=0.25)
        await client.report(taken.callback_key, parts=[part], node=0)
        assert await client.end(taken.key, answer="42") == 1
        with pytest.raises(ServiceError) as refused:
            await client.talk(taken.key, ["another"])
        assert refused.value.reason == reasons.ERROR_REASON_SESSION_CLOSED
        assert (await run.learner.status()).detail["agents"] == 1
        await run.drain()
    async with served(here, task=calls_back) as (run, client):
        await client.report(taken.callback_key, reward=2.0)
        trajectory = await leased(run)
        with pytest.raises(ServiceError) as refused:
            await client.report(taken.callback_key, reward=3.0)
        assert refused.value.reason == reasons.ERROR_REASON_SESSION_CLOSED
    assert (trajectory.reward, trajectory.masked) == (2.0, False)
    assert trajectory.stop_reason is StopReason.ANSWERED
    assert trajectory.metadata["answer"] == "42"


async def test_a_reward_that_does_not_come_back_masks_the_trajectory(world: MakeWorld) -> None:
    here = await world()
    task = {"agent": {"reward_from": "callback"}, "limits": {"seconds": 0.5}}
    async with served(here, task=task) as (run, client):
        taken = await client.take()
        await client.talk(taken.key, ["q"])
        await client.end(taken.key)
        trajectory = await leased(run)
    assert (trajectory.masked, trajectory.stop_reason) == (True, StopReason.ANSWERED)


async def test_infrastructure_that_ends_an_agent_hands_out_another_attempt(
    world: MakeWorld,
) -> None:
    here = await world()
    async with served(here) as (run, client):
        await until(lambda: run.engine._agents.waiting == 1, "the member")  # type: ignore[union-attr]
        before = (await run.learner.status()).detail
        first = await client.take(1)
        after = (await run.learner.status()).detail
        assert [(one["waiting_for_agents"], one["agents"]) for one in (before, after)] == [
            (1, 0), (0, 1)
        ]  # fmt: skip
        assert (await client.take(2, wait=0.05)).key == ""
        await client.end(first.key, pb.OUTCOME_INFRASTRUCTURE, error="the container died")
        second = await client.take(3)
        assert first.key != second.key
        assert first.trajectory_id == second.trajectory_id
        with pytest.raises(ServiceError) as over:
            await client.talk(first.key, ["q"])
        assert over.value.reason == reasons.ERROR_REASON_SESSION_CLOSED
        await client.talk(second.key, ["q"])
        await client.end(second.key)
        assert (await leased(run)).attempt == 1


async def test_an_end_is_answered_once_the_disk_has_it(world: MakeWorld) -> None:
    here = await world()
    async with served(here) as (run, client):
        taken = await client.take()
        await client.talk(taken.key, ["q"])
        agents: Any = run.engine._agents
        written, durable = asyncio.Event(), agents.durable
        agents.durable = written.wait
        (attempt,) = agents._live.values()
        ends = [asyncio.create_task(client.end(taken.key, answer="42")) for _ in range(2)]
        await until(lambda: attempt.log.state.ended is not None, "the end in the log")
        await holds_for(0.1, lambda: not any(end.done() for end in ends), "no response")
        agents.durable = durable
        written.set()
        await asyncio.gather(*ends)
        assert (await leased(run)).metadata["answer"] == "42"


async def test_a_repeated_end_is_answered_as_the_first(world: MakeWorld) -> None:
    here = await world()
    pair: Any = {"run": PAIR}
    async with served(here, **pair) as (run, client):
        first, second = await client.take(1), await client.take(2)
        talk = await client.talk(first.key, ["q"])
        await client.talk(first.key, [*talk, "go on"])
        ended = [await client.end(first.key) for _ in range(2)]
        await run.drain()
    async with served(here, **pair) as (run, client):
        ended.append(await client.end(first.key))
        await client.talk(second.key, ["q"])
        await client.end(second.key)
        await run.learner.lease(run.version)
        await run.drain()
    async with served(here, **pair) as (run, client):
        ended += [await client.end(first.key), await client.end(second.key)]
    assert ended == [2, 2, 2, 2, 1]


async def test_time_between_calls_counts_over_lives_of_the_engine(world: MakeWorld) -> None:
    here = await world()
    task: dict[str, Any] = {"agent": {}, "limits": {"seconds": 60.0}}
    async with served(here, task=task) as (run, client):
        taken = await client.take()
        talk = await client.talk(taken.key, ["q"])
        await passes(1.0, "the agent's own work")
        await client.talk(taken.key, talk)
        await run.drain()
    task["limits"]["seconds"] = 1.0  # it was spent before
    async with served(here, task=task) as (run, client):
        trajectory = await leased(run)
    assert trajectory.stop_reason is StopReason.TRAJECTORY_TIMEOUT
    assert 1.0 <= trajectory.timings.wall_s < 60.0


async def test_a_report_that_cannot_be_a_score_is_refused(world: MakeWorld) -> None:
    here = await world()
    async with served(here, task=REPORTS) as (run, client):
        taken = await client.take()
        await client.talk(taken.key, ["q"])

        async def refused(**fields: Any) -> None:
            with pytest.raises(ServiceError) as error:
                await client.report(taken.reward_key, **fields)
            assert error.value.reason == reasons.ERROR_REASON_INVALID_REQUEST

        await client.report(taken.reward_key, reward=0.5)
        await refused(reward=float("nan"))
        await refused(parts=[trajectory_pb2.RewardPart(name="a", value=float("inf"))])
        await refused(parts=[trajectory_pb2.RewardPart(name="a", value=1.0, turn=1)])
        many = [trajectory_pb2.RewardPart(name=str(number), value=0.0) for number in range(1025)]
        await refused(parts=many)
        await refused(parts=[trajectory_pb2.RewardPart(name="n" * 257, value=0.0)])
        with pytest.raises(ServiceError) as long:
            await client.end(taken.key, answer="a" * ((1 << 20) + 1))
        assert long.value.reason == reasons.ERROR_REASON_INVALID_REQUEST
        await client.end(taken.key)
        trajectory = await leased(run)
    assert (trajectory.reward, trajectory.masked) == (0.5, False)
