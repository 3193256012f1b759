"""`engine serve --workers`: real worker processes, which die and lose their connection."""

from __future__ import annotations

import asyncio
import os
import signal
from collections import Counter
from functools import partial
from typing import Any

import pytest

from bench.scripted import Timing
from engine.core.tools.output_log import OutputLog
from engine.errors import StartupError
from engine.serving.crew.processes.local_workers import LocalWorkers, WorkerProcess
from engine.serving.crew.processes.worker_process import work_command
from engine.serving.crew.worker_link import WorkerLink
from engine.serving.crew.workers import Workers
from engine.serving.seams import Seams
from engine.serving.worker.worker import LEASE_ENDED
from tests.integration.engine.conftest import MakeWorld
from tests.support.dialogue import ANSWER, CALL, by_turn
from tests.support.engines import Running
from tests.support.recipes import ONE
from tests.support.tools import ToolDouble, add_up
from tests.support.waiting import blocks, until
from toolwright.crew.v1 import crew_pb2 as pb_crew
from toolwright.tool.v1 import tool_pb2 as pb
from toolwright.types import Author


class Lasting(ToolDouble):
    """A service whose calls wait for `go`, and whose sessions a later life finds again."""

    def __init__(self, go: asyncio.Event) -> None:
        async def run(request: pb.CallToolRequest) -> pb.CallResult:
            await go.wait()
            return add_up(request)

        super().__init__(run)

    async def GetSession(
        self, request: pb.GetSessionRequest, context: Any
    ) -> pb.GetSessionResponse:
        asked = (one for one in self.asked if one.session_id == request.session_id)
        return pb.GetSessionResponse(
            call_ids=list(dict.fromkeys(one.call_id for one in asked)), tools=self.tools
        )


STEP = {"steps": 1, "groups_per_step": 2, "group_size": 3}


def workers_of(run: Running) -> Workers:
    workers = run.engine._workers
    assert workers is not None
    return workers


def pids(run: Running) -> list[int]:
    """Processes of the workers, the oldest first."""
    return [link.pid for link in workers_of(run)._links.values()]


def _received_after(link: WorkerLink, number: int) -> bool:
    return link.received > number


async def until_status(run: Running, key: str, value: float) -> None:
    engine = run.engine
    await until(lambda: engine.status.message().detail[key] == value, f"{key} {value:g}")


@pytest.mark.quick
async def test_workers_roll_out_what_the_engine_itself_would(world: MakeWorld) -> None:
    here = await world(run=STEP)
    async with here.engine(workers=2) as run:
        groups = await run.learner.lease(run.version, count=2)
        await until(lambda: not here.tools.live, "the sessions' end")
        await until_status(run, "calls", 6)
        await until_status(run, "tool_sessions", 0)
        assert all(workers_of(run).named(name) for name in ("w1", "w2"))
    assert sorted(one.info.id for one in groups) == ["g0000000", "g0000001"]
    for group in groups:
        assert group.hash == group.info.content_hash
        for member in group.members:
            assert member.reward == 1.0
            assert here.texts(member)[1:] == [
                ("model", CALL),
                ("tool", "<result> 2</result>"),
                ("model", ANSWER),
            ]
    lives = {member.calls[0].call_id.split("/")[1] for group in groups for member in group.members}
    assert lives <= {"b1w1r0a0", "b1w2r0a0"}


@pytest.mark.slow
async def test_a_killed_workers_trajectory_goes_on_in_its_session(world: MakeWorld) -> None:
    """The call was sent before the kill: it runs once, and its answer is in the record."""
    go = asyncio.Event()
    here = await world(run=ONE, tools=Lasting(go))
    async with here.engine(workers=1) as run:
        await until(lambda: bool(here.tools.asked), "the call")
        await until(lambda: workers_of(run)._links["w1"].durable > 0, "durable events")
        os.kill(pids(run)[0], signal.SIGKILL)
        go.set()
        (group,) = await run.learner.lease(run.version)
        await until(lambda: not here.tools.live, "the session's end")
    (trajectory,) = group.members
    assert len(here.tools.opened) == 1
    assert trajectory.calls[0].call_id == f"{trajectory.id}/b1w1r0a0/0/0"
    assert [a.call_id for a in here.tools.asked] == [trajectory.calls[0].call_id] * 2
    assert trajectory.reward == 1.0


@pytest.mark.slow
async def test_work_of_a_killed_worker_is_at_another_one_at_once(world: MakeWorld) -> None:
    """Both workers have a group; the killed one's ends at the other before it is replaced."""
    here = await world(run=STEP, timing=Timing(tokens_per_second=40))
    async with here.engine(workers=2) as run:
        await until(lambda: len(here.tools.opened) == 6, "all sessions")
        os.kill(pids(run)[0], signal.SIGKILL)
        groups = await run.learner.lease(run.version, count=2)
        await until(lambda: not here.tools.live, "the sessions' end")
    members = [member for group in groups for member in group.members]
    assert len({member.id for member in members}) == len(members) == 6
    assert {member.reward for member in members} == {1.0}
    effects = Counter((one.session_id, one.turn, one.call_id) for one in here.tools.asked)
    assert {member.calls[0].call_id for member in members} <= {key[2] for key in effects}


@pytest.mark.slow
async def test_a_broken_connection_loses_and_repeats_nothing(world: MakeWorld) -> None:
    here = await world(run=STEP, timing=Timing(tokens_per_second=40))
    async with here.engine(workers=1) as run:
        await until(lambda: len(here.tools.opened) == 6, "all sessions")
        for _ in range(3):
            link = workers_of(run)._links["w1"]
            link.end_stream()
            await until(partial(_received_after, link, link.received), "reports on a new stream")
        groups = await run.learner.lease(run.version, count=2)
        assert pids(run) == [link.pid]
    attempts = [member.calls[0].call_id for group in groups for member in group.members]
    assert all("/b1w1r0a0/" in attempt for attempt in attempts)
    assert len(here.tools.asked) == 6


@pytest.mark.slow
async def test_a_drain_leaves_trajectories_to_the_next_life(world: MakeWorld) -> None:
    """They go on without workers, in their sessions."""
    go = asyncio.Event()
    here = await world(run=ONE, tools=Lasting(go), engine={"drain_s": 0.2})
    async with here.engine(workers=1) as run:
        await until(lambda: bool(here.tools.asked), "the call")
        await run.drain()
    assert here.tools.live
    go.set()
    async with here.engine() as run:
        (group,) = await run.learner.lease(run.version)
        await until(lambda: not here.tools.live, "the session's end")
    assert len(here.tools.opened) == 1
    assert "/b1w1r0a0/" in group.members[0].calls[0].call_id


@pytest.mark.slow
async def test_a_publish_is_known_to_all_workers_before_its_first_token(world: MakeWorld) -> None:
    """A version that a worker did not know would cost the server's streams."""
    replies = [CALL, CALL, CALL, ANSWER]
    run_table = {"steps": 3, "groups_per_step": 1, "group_size": 4, "max_staleness": 1}
    here = await world(
        run={**run_table, "correction": "decoupled"}, timing=Timing(tokens_per_second=60)
    )
    here.sampler.script = by_turn(here.codec, replies)
    async with here.engine(workers=2) as run:
        await until(lambda: len(here.tools.asked) >= 2, "calls")
        answer = await run.learner.publish(run.at(1), here.weights("1"))
        assert answer.samplers == 1
        groups = await run.learner.lease(run.at(1), count=2)
        samplers = run.engine._pool.statistics().values()
        assert all(one["up"] for one in samplers)
        for statistics in workers_of(run).statistics:
            for one in statistics.samplers.values():
                assert not one["failures"]
    versions = {
        segment.weight_version
        for group in groups
        for member in group.members
        for segment in member.sequences[0].segments
        if segment.author is Author.MODEL
    }
    assert run.at(1) in versions


@pytest.mark.slow
async def test_a_stalled_coordinator_loses_no_worker_at_a_publish(world: MakeWorld) -> None:
    """The worker confirms new weights while the coordinator's event loop stands still."""
    here = await world(run=ONE)
    async with here.engine(workers=1) as run:
        workers = workers_of(run)
        await workers.all_ready.wait()
        (link,) = workers._links.values()
        announced = asyncio.create_task(run.engine._pool.announced())
        await asyncio.sleep(0)
        blocks(3.0, "the coordinator stalls")
        await announced
        assert not link.lost.done()


@pytest.mark.slow
async def test_a_worker_whose_report_cannot_be_taken_is_replaced(world: MakeWorld) -> None:
    """Half a report may be taken: what the worker sends after it must not count."""
    here = await world(run=ONE)
    async with here.engine(workers=1) as run:
        workers = workers_of(run)
        await workers.all_ready.wait()
        link = workers._links["w1"]
        odd = pb_crew.SessionChange(service="unknown", session_id="s")
        report = pb_crew.Report(sequence=link.received + 1, sessions=[odd])
        workers.take(link, pb_crew.WorkRequest(report=report))
        assert "could not be taken" in link.lost.result()
        await until(lambda: workers.named("w2") is not None, "the next worker")


@pytest.mark.slow
async def test_a_stop_while_workers_start_waits_neither_for_work_nor_for_them(
    world: MakeWorld,
) -> None:
    here = await world(run=ONE, engine={"drain_s": 60.0})
    async with asyncio.timeout(40), here.engine(workers=1) as run:
        assert not workers_of(run).all_ready.is_set()


@pytest.mark.quick
async def test_a_recipe_that_needs_the_engines_own_process_is_refused(world: MakeWorld) -> None:
    here = await world(run={**ONE, "share_gpu": True})
    with pytest.raises(StartupError, match=r"--workers with run\.share_gpu"):
        async with here.engine(workers=1):
            raise AssertionError("it serves")
    here = await world(run=ONE, engine={"max_concurrent": "auto"})
    with pytest.raises(StartupError, match=r"--workers with engine\.max_concurrent"):
        async with here.engine(workers=1):
            raise AssertionError("it serves")


class CutOff(WorkerProcess):
    """A worker that is reported dead, and cannot be killed, while it lives on."""

    def __init__(self, command: tuple[str, ...], output: OutputLog) -> None:
        super().__init__(command, output)
        self.reported = asyncio.Event()
        self.code: int | None = None

    async def ended(self) -> str:
        await self.reported.wait()
        return "its node is reported dead"

    async def kill(self) -> bool:
        return False

    async def really_ended(self) -> None:
        assert self._process is not None
        self.code = await self._process.wait()


class FirstCutOff(LocalWorkers):
    """Workers of this machine; the first is cut off."""

    first: CutOff | None = None

    def make(self, name: str, output: OutputLog) -> WorkerProcess:
        if self.first is not None:
            return super().make(name, output)
        self.first = CutOff(work_command(self._address, name), output)
        return self.first


@pytest.mark.slow
async def test_work_of_an_unseen_end_waits_until_the_lease_is_over(world: MakeWorld) -> None:
    """Such a worker is on a node that is cut off: it lives on, and nobody can kill it."""
    go = asyncio.Event()
    go.set()
    here = await world(
        run={**STEP, "group_size": 2}, tools=Lasting(go), timing=Timing(tokens_per_second=20)
    )
    crew = FirstCutOff()
    async with here.engine(workers=1, seams=Seams(crew=crew)) as run:
        await until(lambda: len(here.tools.opened) == 4, "all sessions")
        first = crew.first
        assert first is not None
        ending = asyncio.create_task(first.really_ended())
        first.reported.set()
        links = workers_of(run)._links
        await until(lambda: any(links[name].assignments for name in links if name != "w1"), "work")
        assert first.code == LEASE_ENDED
        await ending
        groups = await run.learner.lease(run.version, count=2)
        await until(lambda: not here.tools.live, "the sessions' end")
    members = [member for group in groups for member in group.members]
    assert [member.reward for member in members] == [1.0] * 4
    asked = {one.call_id for one in here.tools.asked}
    assert {member.calls[0].call_id for member in members} <= asked
