"""Groups to the learner: identical when asked again, never too stale, forgotten when durable."""

from __future__ import annotations

import asyncio

import grpc
import grpc.aio
import pytest

from tests.integration.engine.conftest import MakeWorld
from tests.support.engines import Running
from tests.support.tools import held
from tests.support.waiting import holds_for, until
from toolwright import wire
from toolwright.common.v1 import reasons_pb2 as reasons
from toolwright.rollout.v1 import rollout_pb2
from toolwright.rpc.channel import call
from toolwright.rpc.errors import ServiceError
from toolwright.types import WeightVersion

pytestmark = pytest.mark.quick

RUN = {"steps": 4, "groups_per_step": 3, "group_size": 2}


async def accepted(run: Running, trajectories: int) -> None:
    """That many are accepted and nothing is in flight."""

    lane = run.engine._lane
    await until(
        lambda: (lane.counts.accepted, lane.running) == (trajectories, 0),
        f"{trajectories} trajectories, got {lane.counts}",
    )
    status = await run.learner.status()
    assert (status.accepted, status.running) == (trajectories, 0)


async def test_groups_are_whole_in_order_and_identical_when_asked_again(world: MakeWorld) -> None:
    here = await world(run=RUN)
    async with here.engine() as run:
        groups = await run.learner.lease(run.version, count=3)
        again = await run.learner.lease(run.version, count=3)
        rest = await run.learner.lease(run.version, count=2, after=groups[0].info.sequence_number)
        one = await run.learner.lease(run.version, count=1)
    assert again == groups
    assert rest == groups[1:]
    assert one == groups[:1]
    numbers = [g.info.sequence_number for g in groups]
    assert numbers == sorted(set(numbers))
    assert {g.info.id for g in groups} == {f"g{n:07d}" for n in range(3)}
    for group in groups:
        assert group.info.members == len(group.raw) == 2
        assert group.hash == group.info.content_hash
        assert [t.index for t in group.members] == [0, 1]
        assert {t.group_id for t in group.members} == {group.info.id}
        assert {t.task.id for t in group.members} == {f"t{int(group.info.id[1:])}"}
    assert len({t.id for g in groups for t in g.members}) == 6


async def test_a_group_that_no_message_holds_is_dropped(
    world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = await world(run=RUN)
    async with here.engine() as run:
        await accepted(run, 6)
        journal = run.engine.journal
        real = journal.drop

        async def drop_once(sequence: int) -> None:
            monkeypatch.undo()
            await real(sequence)

        monkeypatch.setattr(journal, "drop", drop_once)
        monkeypatch.setattr("engine.serving.delivery.delivery.MOST_RECORD", 10)
        groups = await run.learner.lease(run.version, count=3)
    assert [group.info.id for group in groups] == ["g0000001", "g0000002", "g0000003"]


async def test_staleness_0_samples_one_batch_a_version(world: MakeWorld) -> None:
    here = await world(run=RUN)
    async with here.engine() as run:
        groups = await run.learner.lease(run.version, count=99, wait=0.3)
        assert len(groups) == 3
        await accepted(run, 6)
        status = await run.learner.status()
        assert (status.state, status.waiting_groups) == ("running", 3)
        mark = groups[-1].info.sequence_number
        assert await run.learner.acknowledge(mark) == mark
        assert (await run.learner.status()).waiting_groups == 0
        assert (
            await run.learner.lease(run.version, after=mark, wait=0.2) == []
        )  # still this batch's
        waiting = asyncio.create_task(run.learner.lease(run.at(1), after=mark, count=2))
        await holds_for(0.1, lambda: not waiting.done(), "the lease to wait for what comes")
        await run.learner.publish(run.at(1), here.weights("1"))
        assert len(await waiting) == 2
        later = await run.learner.lease(run.at(1), after=mark, count=99, wait=0.3)
    assert len(later) == 3
    assert {v for g in later for t in g.members for v in t.weight_versions} == {run.at(1)}
    assert {g.info.id for g in later} == {f"g{n:07d}" for n in (3, 4, 5)}


async def test_a_lease_and_a_drain_are_answered_within_their_bounds(
    world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    for bound in ("LONGEST_LEASE_WAIT", "LONGEST_DRAIN_WAIT"):
        monkeypatch.setattr(f"engine.serving.service.{bound}", 0.2)
    go_on = asyncio.Event()
    here = await world(run=RUN, tools=held(go_on))
    async with here.engine() as run:
        async with asyncio.timeout(20):
            assert await run.learner.lease(run.version, wait=3600) == []
            for request in (
                rollout_pb2.DrainRequest(),  # which waits for nothing
                rollout_pb2.DrainRequest(deadline=wire.duration(3600)),
            ):
                assert (await call(run.learner.rollout.Drain, request, timeout=30)).unfinished == 6
        go_on.set()
        assert len(await run.learner.lease(count=3)) == 3


async def test_a_batch_is_leased_ahead_at_the_version_that_it_will_train(world: MakeWorld) -> None:
    """One step before it is published: the bytes are those that a lease after it brings."""
    here = await world(run={**RUN, "max_staleness": 1, "correction": "decoupled"})
    async with here.engine() as run:
        first = await run.learner.lease(run.version, count=3)
        mark = first[-1].info.sequence_number
        ahead = await run.learner.lease(run.at(1), after=mark, count=3)
        await run.learner.publish(run.at(1), here.weights("1"))
        assert await run.learner.lease(run.at(1), after=mark, count=3) == ahead
        assert {v for g in ahead for t in g.members for v in t.weight_versions} == {run.version}
        beyond = ahead[-1].info.sequence_number
        fresh = await run.learner.lease(run.at(2), after=beyond, count=3)
        assert (await run.learner.status()).dropped_groups == 0
    assert {v for g in fresh for t in g.members for v in t.weight_versions} == {run.at(1)}


async def test_groups_that_are_too_old_are_dropped_counted_and_replaced(world: MakeWorld) -> None:
    here = await world(run={**RUN, "max_staleness": 1, "correction": "decoupled"})
    async with here.engine() as run:
        old = await run.learner.lease(run.version, count=6)
        await accepted(run, 12)
        await run.learner.publish(run.at(1), here.weights("1"))
        await accepted(run, 18)
        # At step 1 what version 0 wrote is within the bound: offered as it was.
        assert await run.learner.lease(run.at(1), count=6) == old
        await run.learner.publish(run.at(2), here.weights("2"))
        await accepted(run, 24)
        fresh = await run.learner.lease(run.at(2), count=99, wait=0.3)
        status = await run.learner.status()
        assert status.dropped_groups == 6
        for group in fresh:
            for trajectory in group.members:
                assert all(v.step >= 1 for v in trajectory.weight_versions)
        assert not {g.info.id for g in fresh} & {g.info.id for g in old}
        # Their places are free again: nothing that the run's steps need is missing.
        await accepted(run, 24)
        assert {g.info.id for g in fresh} | {g.info.id for g in old} >= {
            f"g{n:07d}" for n in range(12)
        }
        more = await run.learner.lease(
            run.at(2), after=fresh[-1].info.sequence_number, count=99, wait=0.3
        )
        numbers = [g.info.sequence_number for g in (*old, *fresh, *more)]
        assert numbers == sorted(set(numbers))


async def test_acknowledged_groups_are_gone_and_say_so(world: MakeWorld) -> None:
    here = await world(run=RUN)
    async with here.engine() as run:
        groups = await run.learner.lease(run.version, count=3)
        first, second, last = (g.info.sequence_number for g in groups)
        assert await run.learner.acknowledge(second) == second
        assert await run.learner.acknowledge(first) == second  # never lowered
        assert await run.learner.lease(run.version, after=second, count=3, wait=0.1) == groups[2:]
        for mark in (0, first):
            with pytest.raises(ServiceError, match="acknowledged and gone") as caught:
                await run.learner.lease(run.version, after=mark)
            assert caught.value.reason == reasons.ERROR_REASON_UNKNOWN_SEQUENCE
        with pytest.raises(ServiceError, match="never leased") as caught:
            await run.learner.acknowledge(last + 1)
        assert caught.value.reason == reasons.ERROR_REASON_UNKNOWN_SEQUENCE
        assert (await run.learner.status()).durable_sequence == second
        with pytest.raises(ServiceError, match="never published") as caught:
            await run.learner.lease(WeightVersion(lineage="stranger", step=3))
        assert caught.value.reason == reasons.ERROR_REASON_WRONG_LINEAGE


async def test_a_request_that_names_no_lane_is_refused(world: MakeWorld) -> None:
    here = await world(run=RUN)
    async with here.engine() as run:
        rollout = run.learner.rollout
        with pytest.raises(ServiceError, match="neither CONSUMER_TRAIN nor") as caught:
            await call(rollout.AckGroups, rollout_pb2.AckGroupsRequest(), timeout=10)
        assert caught.value.reason == reasons.ERROR_REASON_INVALID_REQUEST
        with pytest.raises(grpc.aio.AioRpcError, match="neither CONSUMER_TRAIN nor"):
            [item async for item in rollout.LeaseGroups(rollout_pb2.LeaseGroupsRequest())]


async def test_a_drain_finishes_what_is_in_flight_and_answers_leases(world: MakeWorld) -> None:
    """Nothing is admitted after it, also when a publish makes room. The groups are in the journal:
    the next life offers them too, and samples none of them anew."""
    here = await world(run=RUN)
    async with here.engine() as run:
        await until(lambda: len(here.sampler.requests) > 0, "a request")
        request = rollout_pb2.DrainRequest(deadline=wire.duration(20))
        answer = await call(run.learner.rollout.Drain, request, timeout=30)
        assert answer.unfinished == 0
        await until(lambda: not here.tools.live, "the sessions' end")
        groups = await run.learner.lease(run.version, count=99, wait=0.1)
        assert len(groups) == 3
        await run.learner.publish(run.at(1), here.weights("1"))
        status = await run.learner.status()
        assert (status.state, status.running, status.accepted) == ("draining", 0, 6)
        assert (await call(run.learner.rollout.Drain, request, timeout=10)).unfinished == 0
        assert not run.task.done()
        assert await run.learner.lease(run.at(1), count=99, wait=0.1) == []  # stale now
        asked = len(here.sampler.requests)
        await run.drain()
    assert asked == 12
