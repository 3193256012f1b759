"""Groups to the learner: identical when asked again, never too stale, forgotten when durable."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3

import grpc
import grpc.aio
import pytest

from tests.integration.engine.conftest import MakeWorld
from tests.support.engines import Running
from tests.support.tools import ToolDouble, add_up
from tests.support.waiting import holds_for, until
from toolwright import wire
from toolwright.common.v1 import reasons_pb2 as reasons
from toolwright.common.v1 import trajectory_pb2
from toolwright.rollout.v1 import rollout_pb2
from toolwright.rpc.channel import call
from toolwright.rpc.errors import ServiceError
from toolwright.tool.v1 import tool_pb2 as pb
from toolwright.types import WeightVersion

pytestmark = pytest.mark.quick

RUN = {"steps": 4, "groups_per_step": 3, "group_size": 2}


def step(version: WeightVersion, number: int) -> WeightVersion:
    return WeightVersion(lineage=version.lineage, step=number)


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
        version = await run.learner.version()
        groups = await run.learner.lease(version, count=3)
        again = await run.learner.lease(version, count=3)
        rest = await run.learner.lease(version, count=2, after=groups[0].info.sequence_number)
        one = await run.learner.lease(version, count=1)
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


async def test_staleness_0_samples_one_batch_a_version(world: MakeWorld) -> None:
    here = await world(run=RUN)
    async with here.engine() as run:
        version = await run.learner.version()
        groups = await run.learner.lease(version, count=99, wait=0.3)
        assert len(groups) == 3
        await accepted(run, 6)
        status = await run.learner.status()
        assert (status.state, status.waiting_groups) == ("running", 3)
        mark = groups[-1].info.sequence_number
        assert await run.learner.acknowledge(mark) == mark
        assert (await run.learner.status()).waiting_groups == 0
        assert await run.learner.lease(version, after=mark, wait=0.2) == []  # still this batch's
        await run.learner.publish(step(version, 1), here.weights("1"))
        later = await run.learner.lease(step(version, 1), after=mark, count=99, wait=0.3)
    assert len(later) == 3
    assert {v for g in later for t in g.members for v in t.weight_versions} == {step(version, 1)}
    assert {g.info.id for g in later} == {f"g{n:07d}" for n in (3, 4, 5)}


async def test_a_lease_waits_for_what_comes(world: MakeWorld) -> None:
    here = await world(run=RUN)
    async with here.engine() as run:
        version = await run.learner.version()
        groups = await run.learner.lease(version, count=3)
        mark = groups[-1].info.sequence_number
        waiting = asyncio.create_task(run.learner.lease(step(version, 1), after=mark, count=2))
        await holds_for(0.1, lambda: not waiting.done(), "the lease to wait")
        assert not waiting.done()
        await run.learner.publish(step(version, 1), here.weights("1"))
        assert len(await waiting) == 2


async def test_a_lease_and_a_drain_are_answered_within_their_bounds(
    world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    for bound in ("LONGEST_LEASE_WAIT", "LONGEST_DRAIN_WAIT"):
        monkeypatch.setattr(f"engine.serving.service.{bound}", 0.2)
    go_on = asyncio.Event()

    async def hangs(request: pb.CallToolRequest) -> pb.CallResult:
        await go_on.wait()
        return add_up(request)

    here = await world(run=RUN, tools=ToolDouble(hangs))
    async with here.engine() as run:
        version = await run.learner.version()
        async with asyncio.timeout(20):
            assert await run.learner.lease(version, wait=3600) == []
            request = rollout_pb2.DrainRequest(deadline=wire.duration(3600))
            assert (await call(run.learner.rollout.Drain, request, timeout=30)).unfinished == 6
        go_on.set()


async def test_a_batch_is_leased_ahead_at_the_version_that_it_will_train(world: MakeWorld) -> None:
    """One step before it is published: the bytes are those that a lease after it brings."""
    here = await world(run={**RUN, "max_staleness": 1, "correction": "decoupled"})
    async with here.engine() as run:
        version = await run.learner.version()
        first = await run.learner.lease(version, count=3)
        mark = first[-1].info.sequence_number
        ahead = await run.learner.lease(step(version, 1), after=mark, count=3)
        await run.learner.publish(step(version, 1), here.weights("1"))
        assert await run.learner.lease(step(version, 1), after=mark, count=3) == ahead
        assert {v for g in ahead for t in g.members for v in t.weight_versions} == {version}
        beyond = ahead[-1].info.sequence_number
        fresh = await run.learner.lease(step(version, 2), after=beyond, count=3)
        assert (await run.learner.status()).dropped_groups == 0
    assert {v for g in fresh for t in g.members for v in t.weight_versions} == {step(version, 1)}


async def test_groups_that_are_too_old_are_dropped_counted_and_replaced(world: MakeWorld) -> None:
    here = await world(run={**RUN, "max_staleness": 1, "correction": "decoupled"})
    async with here.engine() as run:
        version = await run.learner.version()
        old = await run.learner.lease(version, count=6)
        await accepted(run, 12)
        await run.learner.publish(step(version, 1), here.weights("1"))
        await accepted(run, 18)
        # At step 1 what version 0 wrote is within the bound: offered as it was.
        assert await run.learner.lease(step(version, 1), count=6) == old
        await run.learner.publish(step(version, 2), here.weights("2"))
        await accepted(run, 24)
        fresh = await run.learner.lease(step(version, 2), count=99, wait=0.3)
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
            step(version, 2), after=fresh[-1].info.sequence_number, count=99, wait=0.3
        )
        numbers = [g.info.sequence_number for g in (*old, *fresh, *more)]
        assert numbers == sorted(set(numbers))


async def test_a_trajectory_over_several_publishes_keeps_its_fresh_turns(world: MakeWorld) -> None:
    """Its first turn is too old when it is leased: it comes without loss, the second one with."""
    go = asyncio.Event()

    async def slow(request: pb.CallToolRequest) -> pb.CallResult:
        await go.wait()
        return add_up(request)

    here = await world(run={**RUN, "groups_per_step": 1}, tools=ToolDouble(slow))
    async with here.engine() as run:
        version = await run.learner.version()
        await here.tools.called.wait()
        await until(lambda: len(here.tools.asked) == 2, "both members' calls")
        await run.learner.publish(step(version, 1), here.weights("1"))
        await run.learner.publish(step(version, 2), here.weights("2"))
        go.set()
        (group,) = await run.learner.lease(step(version, 2))
        (again,) = await run.learner.lease(step(version, 2))
        status = await run.learner.status()
    assert group.hash == group.info.content_hash
    assert group == again
    assert status.dropped_groups == 0
    for member in group.members:
        wrote = [
            (s.weight_version.step, s.trainable)
            for q in member.sequences
            for s in q.segments
            if s.weight_version
        ]
        assert wrote == [(0, False), (2, True)]
        assert not member.masked
    # The journal holds the record as it was: at the version that wrote it all of it counts.
    with contextlib.closing(sqlite3.connect(run.folder / "journal.sqlite")) as journal:
        rows = journal.execute("SELECT trajectory FROM members WHERE sequence = 1").fetchall()
    stored = [wire.trajectory_from_proto(trajectory_pb2.Trajectory.FromString(r)) for (r,) in rows]
    assert [all(t.sequences[0].segments[i].trainable for i in (1, 3)) for t in stored] == [True] * 2


async def test_acknowledged_groups_are_gone_and_say_so(world: MakeWorld) -> None:
    here = await world(run=RUN)
    async with here.engine() as run:
        version = await run.learner.version()
        groups = await run.learner.lease(version, count=3)
        first, second, last = (g.info.sequence_number for g in groups)
        assert await run.learner.acknowledge(second) == second
        assert await run.learner.acknowledge(first) == second  # never lowered
        assert await run.learner.lease(version, after=second, count=3, wait=0.1) == groups[2:]
        for mark in (0, first):
            with pytest.raises(ServiceError, match="acknowledged and gone") as caught:
                await run.learner.lease(version, after=mark)
            assert caught.value.reason == reasons.ERROR_REASON_UNKNOWN_SEQUENCE
        with pytest.raises(ServiceError, match="never leased") as caught:
            await run.learner.acknowledge(last + 1)
        assert caught.value.reason == reasons.ERROR_REASON_UNKNOWN_SEQUENCE
        assert (await run.learner.status()).durable_sequence == second


async def test_a_version_that_nobody_published_gets_no_groups(world: MakeWorld) -> None:
    here = await world(run=RUN)
    async with here.engine() as run:
        await run.learner.lease(await run.learner.version(), count=3)
        with pytest.raises(ServiceError, match="never published") as caught:
            await run.learner.lease(WeightVersion(lineage="stranger", step=3))
        assert caught.value.reason == reasons.ERROR_REASON_WRONG_LINEAGE


async def test_what_is_not_served_yet_says_so(world: MakeWorld) -> None:
    here = await world(run=RUN)
    async with here.engine() as run:
        with pytest.raises(ServiceError) as caught:
            await call(
                run.learner.rollout.SubmitTasks, rollout_pb2.SubmitTasksRequest(), timeout=10
            )
        assert caught.value.code is grpc.StatusCode.UNIMPLEMENTED
        ack = rollout_pb2.AckGroupsRequest(consumer=rollout_pb2.CONSUMER_EVAL)
        with pytest.raises(ServiceError) as caught:
            await call(run.learner.rollout.AckGroups, ack, timeout=10)
        assert caught.value.code is grpc.StatusCode.UNIMPLEMENTED
        lease = rollout_pb2.LeaseGroupsRequest(consumer=rollout_pb2.CONSUMER_EVAL, max_groups=1)
        for stream in (
            run.learner.rollout.LeaseGroups(lease, timeout=10),
            run.learner.rollout.WatchEvents(rollout_pb2.WatchEventsRequest(), timeout=10),
        ):
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                [item async for item in stream]
            assert refused.value.code() is grpc.StatusCode.UNIMPLEMENTED


async def test_a_drain_finishes_what_is_in_flight_and_goes_on_answering_leases(
    world: MakeWorld,
) -> None:
    """Nothing is admitted after it, also when a publish makes room. The groups are in the journal:
    the next life offers them too, and samples none of them anew."""
    here = await world(run=RUN)
    async with here.engine() as run:
        version = await run.learner.version()
        await until(lambda: len(here.sampler.requests) > 0, "a request")
        request = rollout_pb2.DrainRequest(deadline=wire.duration(20))
        answer = await call(run.learner.rollout.Drain, request, timeout=30)
        assert answer.unfinished == 0
        await until(lambda: not here.tools.live, "the sessions' end")
        groups = await run.learner.lease(version, count=99, wait=0.1)
        assert len(groups) == 3
        await run.learner.publish(step(version, 1), here.weights("1"))
        status = await run.learner.status()
        assert (status.state, status.running, status.accepted) == ("draining", 0, 6)
        assert (await call(run.learner.rollout.Drain, request, timeout=10)).unfinished == 0
        assert not run.task.done()
        assert await run.learner.lease(step(version, 1), count=99, wait=0.1) == []  # stale now
        asked = len(here.sampler.requests)
        await run.drain()
    assert asked == 12


async def test_a_drain_without_a_deadline_answers_what_is_in_flight(world: MakeWorld) -> None:
    held = asyncio.Event()

    async def hold(request: pb.CallToolRequest) -> pb.CallResult:
        await held.wait()
        return add_up(request)

    here = await world(run=RUN, tools=ToolDouble(hold))
    async with here.engine() as run:
        version = await run.learner.version()
        await here.tools.called.wait()
        answer = await call(run.learner.rollout.Drain, rollout_pb2.DrainRequest(), timeout=10)
        assert answer.unfinished == 6
        held.set()
        assert len(await run.learner.lease(version, count=3)) == 3


async def test_a_group_of_weights_that_were_never_published_is_dropped(world: MakeWorld) -> None:
    """One sampler took them and wrote with them, another refused, so nobody has them now."""
    here = await world(run=RUN)
    async with here.engine() as run:
        version = await run.learner.version()
        groups = await run.learner.lease(version, count=3)
    taken_back = groups[0].info.sequence_number
    with contextlib.closing(sqlite3.connect(run.folder / "journal.sqlite")) as journal, journal:
        journal.execute(
            "UPDATE groups SET versions = ? WHERE sequence = ?", ('["taken-back.1"]', taken_back)
        )
        for number, message in enumerate(groups[0].raw):
            for segment in message.sequences[0].segments:
                if segment.HasField("weight_version"):
                    segment.weight_version.lineage, segment.weight_version.step = "taken-back", 1
            journal.execute(
                "UPDATE members SET trajectory = ? WHERE sequence = ? AND number = ?",
                (wire.serialize(message), taken_back, number),
            )
    async with here.engine() as run:
        left = await run.learner.lease(version, count=99, wait=0.3)
        assert (await run.learner.status()).dropped_groups == 1
    assert left[:2] == groups[1:]
    assert taken_back not in {group.info.sequence_number for group in left}
