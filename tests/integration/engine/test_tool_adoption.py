"""Sessions that outlive an engine: found again by its next life, or given up; and forked ones."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest

from bench.scripted import Timing
from engine.core.tools.calls import PendingCall
from engine.core.tools.services import ToolServices, ToolSessions
from engine.core.trajectory.events import Called
from engine.errors import Fenced, ForkRefused, SessionLost
from engine.types import Call, SessionRef
from tests.integration.engine.conftest import MakeWorld
from tests.integration.toolsvc.conftest import Service, start_service
from tests.support.recipes import ONE
from tests.support.tool_sessions import TASK, call_id, client, clients, said, send
from tests.support.tools import (
    LONG_STOP,
    PYTHON,
    STATELESS_PYTHON,
    ToolDouble,
    broken,
    held,
    serving,
    session_lost,
)
from tests.support.waiting import passes, until
from toolwright.recipe import Tool
from toolwright.rpc.errors import abort
from toolwright.tool.v1 import tool_pb2 as pb

pytestmark = pytest.mark.quick

COUNT = """
import time
from pathlib import Path
from pydantic import BaseModel
from toolsvc import Tool


class Step(BaseModel):
    seconds: float


class Count(Tool):
    name = "count"
    description = "Counts its calls in a file."
    arguments = Step
    stateful = True

    def open(self, session):
        return [0]

    def call(self, state, call):
        state[0] += 1
        with Path({file!r}).open("a") as file:
            file.write("x")
        time.sleep(call.arguments["seconds"])
        return f"call {{state[0]}}"
"""


@pytest.fixture(scope="module")
def count(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Service, Path]]:
    """A service whose calls leave a mark each in a file."""
    folder = tmp_path_factory.mktemp("count")
    (folder / "count.py").write_text(COUNT.format(file=str(folder / "effects")), encoding="utf-8")
    running = start_service(folder / "log", str(folder / "count.py"))
    yield running, folder / "effects"
    running.process.kill()
    running.process.wait()


def life(**services: str) -> AbstractAsyncContextManager[ToolServices]:
    """One life of the engine, which ends without closing anything that it had open."""
    return clients({n: Tool(service=a) for n, a in services.items()}, opens=True)


async def left_open(**services: str) -> tuple[SessionRef, ...]:
    """The sessions of attempt a, which a first life opened."""
    async with life(**services) as first:
        return (await first.open_session("a", TASK)).refs


def step(session: ToolSessions, turn: int, seconds: float = 0.0) -> PendingCall:
    return send(session, Call(action="<count>", tool="count", arguments={"seconds": seconds}), turn)


async def counted(session: ToolSessions, turn: int) -> str:
    return (await step(session, turn).result()).outcome.observation


async def test_a_later_life_finds_the_session_and_a_call_on_its_way_runs_once(
    count: tuple[Service, Path],
) -> None:
    service, effects = count
    before = len(effects.read_text(encoding="utf-8")) if effects.exists() else 0
    async with life(count=service.address) as first:
        session = await first.open_session("a", TASK)
        assert await counted(session, 0) == "call 1"
        step(session, 1, seconds=0.5)
        refs = session.refs
        await until(
            lambda: len(effects.read_text(encoding="utf-8")) == before + 2, "the second call"
        )
    async with life(count=service.address) as second:
        again, ran = await second.adopt("a", TASK, refs)
        assert ran == {call_id(again, 0), call_id(again, 1)}
        assert again.refs == refs
        assert [tool.name for tool in again.tools] == ["count"]
        assert (second.statistics()["count"]).open_sessions == 1
        # As a log has the second call.
        called = Called(
            call_id=call_id(again, 1), turn=1, index=0, action="<count>", tool="count",
            arguments=json.dumps({"seconds": 0.5}), service="count",
        )  # fmt: skip
        pending = again.resend(called.call, call_id=called.call_id, turn=1, turns_left=8)
        assert (await pending.result()).outcome.observation == "call 2"
        assert len(effects.read_text(encoding="utf-8")) == before + 2
        assert await counted(again, 2) == "call 3"  # the state is still there, and goes on
        again.close()
    async with life(count=service.address) as third:
        with pytest.raises(SessionLost):
            await third.adopt("a", TASK, refs)


async def test_a_life_that_wakes_after_the_next_one_has_no_effect(
    count: tuple[Service, Path],
) -> None:
    """It takes the refusal as the end of its work, and counts no failure."""
    service, effects = count
    async with life(count=service.address) as first, life(count=service.address) as second:
        stale = await first.open_session("woken", TASK, fence=1)
        assert await counted(stale, 0) == "call 1"
        again, _ = await second.adopt("woken", TASK, stale.refs, fence=2)
        before = len(effects.read_text(encoding="utf-8"))
        with pytest.raises(Fenced):
            await counted(stale, 1)
        with pytest.raises(Fenced):
            await first.adopt("woken", TASK, stale.refs, fence=1)
        assert first.statistics()["count"].failures == {}
        stale.close()
        await first.services["count"].close()  # its closes are through
        assert len(effects.read_text(encoding="utf-8")) == before
        # The same request under another fence is the same call.
        assert await counted(again, 0) == "call 1"
        assert await counted(again, 1) == "call 2"


async def test_a_service_that_reads_no_fence_gets_none() -> None:
    """It might compare whole requests, and a call is sent again under another fence."""
    double = ToolDouble()
    async with client(double) as tools:
        session = await tools.open_session("a", TASK, fence=3)
        await send(session).result()
        assert [request.fence for request in double.asked] == [0]


async def test_sessions_in_flight_outlive_an_engine_that_drained_for_long_enough(
    world: MakeWorld,
) -> None:
    """Their trajectories go on in the next life."""
    here = await world(timing=Timing(tokens_per_second=5), run=ONE)
    async with here.engine("engine.drain_s=0.1") as run:
        await run.learner.version()
        await until(lambda: bool(here.sampler.requests), "the first action")
        sessions = set(here.tools.live)
    assert sessions
    assert (here.tools.live, here.tools.closed) == (sessions, [])


async def test_a_later_life_goes_on_inside_an_action(world: MakeWorld) -> None:
    """It asks for what follows the tokens that the log has, and samples none of them again."""
    here = await world(timing=Timing(tokens_per_second=8), run=ONE, tools=Told())
    async with here.engine("engine.drain_s=0.5") as run:
        await run.learner.version()
        await until(lambda: bool(here.sampler.requests), "the first action")
    asked = len(here.sampler.requests)
    before = list(here.sampler.requests[-1].body["input_ids"])
    here.sampler.scheduler._timing = Timing()
    trajectory = await here.trajectory()
    assert trajectory.calls[0].call_id == f"{trajectory.id}/b1r0a0/0/0", "the same attempt"
    again = list(here.sampler.requests[asked].body["input_ids"])
    assert again[: len(before)] == before
    assert len(again) > len(before)
    assert again == list(trajectory.sequences[0].token_ids[: len(again)])


async def test_strangers_are_closed_and_only_when_that_is_said(count: tuple[Service, Path]) -> None:
    service, _ = count
    async with life(count=service.address) as first:
        refs = {name: (await first.open_session(name, TASK)).refs for name in ("a", "b", "c")}
    table = Tool(service=service.address, lease_s=0.6)
    async with clients({"count": table}, opens=True, renews=True) as tools:
        await passes(0.8, "leases are renewed, which closes nothing yet")
        adopted, _ = await tools.adopt("a", TASK, refs["a"])
        await tools.close_abandoned({"b"})
        await passes(0.5, "leases are renewed")
        found, _ = await tools.adopt("b", TASK, refs["b"])
        with pytest.raises(SessionLost):
            await tools.adopt("c", TASK, refs["c"])
        for session in (adopted, found):
            assert await counted(session, 0) == "call 1"
            session.close()


async def test_a_session_that_is_being_opened_is_no_stranger() -> None:
    """The service holds it before its answer is there."""
    async with (
        serving(ToolDouble(open_seconds=0.3)) as double,
        life(python=double.address) as tools,
    ):
        opening = asyncio.create_task(tools.open_session("a", TASK))
        await until(lambda: bool(double.live), "the session at the service")
        await tools.close_abandoned(())
        session = await opening
        assert double.closed == []
        session.close()


class Told(ToolDouble):
    """Serves GetSession."""

    async def GetSession(
        self, request: pb.GetSessionRequest, context: Any
    ) -> pb.GetSessionResponse:
        if request.session_id not in self.owners:
            await abort(context, session_lost())
        return pb.GetSessionResponse(call_ids=self.ran, tools=self.tools)


class DeafOnce(Told):
    """The first CloseSession fails."""

    async def CloseSession(
        self, request: pb.CloseSessionRequest, context: Any
    ) -> pb.CloseSessionResponse:
        if not self.closed:
            self.closed.append(request.session_id)
            await abort(context, broken())
        return await super().CloseSession(request, context)


async def test_an_adopted_session_whose_close_failed_is_closed_again() -> None:
    """It was to go on, and has; a renewal that finds it still there has it closed."""
    async with serving(DeafOnce()) as double:
        refs = await left_open(python=double.address)
        async with life(python=double.address) as second:
            await second.close_abandoned({"a"})
            session, _ = await second.adopt("a", TASK, refs)
            session.close()
            await until(lambda: bool(double.closed), "the close that fails")
            await until(lambda: not second._services["python"].known, "its end")
            await second.close_abandoned({"a"})
        assert not double.live


@pytest.mark.parametrize("service_is_gone", [False, True])
async def test_what_one_service_lost_is_closed_at_the_other(service_is_gone: bool) -> None:
    """The session, or the whole service, which the recipe has no more."""
    async with serving(Told()) as one, serving(Told(tools=[LONG_STOP])) as two:
        services = {"one": one.address, "two": two.address}
        refs = await left_open(**services)
        two.owners.clear()
        if service_is_gone:
            del services["two"]
        async with life(**services) as second:
            with pytest.raises(SessionLost, match="two" if service_is_gone else ""):
                await second.adopt("a", TASK, refs)
        assert not one.live
        assert one.closed == [refs[0].session_id]


async def test_a_service_that_cannot_tell_is_not_trusted() -> None:
    """What it ran is not known: the attempt starts again, and the old session is closed."""
    async with serving(ToolDouble()) as double:
        refs = await left_open(python=double.address)
        async with life(python=double.address) as second:
            with pytest.raises(SessionLost, match="unknown"):
                await second.adopt("a", TASK, refs)
            await until(lambda: not double.live, "the close")
            # The same attempt may open another one: that is another session to the service.
            session = await second.open_session("a", TASK)
            assert session.refs[0].session_id != refs[0].session_id
            session.close()


async def test_a_worker_that_was_replaced_is_asked_for_at_the_service() -> None:
    async with serving(Told()) as front, serving(Told()) as back:
        front.endpoint, back.owners = back.address, front.owners
        refs = await left_open(python=front.address)
        assert refs[0].endpoint == back.address
        await back.stop()
        async with life(python=front.address) as second:
            async with asyncio.timeout(10):
                session, _ = await second.adopt("a", TASK, refs)
            assert session.refs[0].endpoint == front.address
            session.close()


async def test_a_fork_of_stateless_tools_is_a_fresh_session() -> None:
    double = ToolDouble(tools=[STATELESS_PYTHON])
    async with serving(double), life(python=double.address) as tools:
        parent = await tools.open_session("a", TASK)
        assert parent.stateless
        child = await tools.fork(parent, "b", TASK)
        assert len(double.live) == 2
        assert child.refs[0].session_id != parent.refs[0].session_id
        assert await said(child, "1+2") == "3"


@pytest.mark.parametrize("forks", [False, True])
async def test_a_fork_that_the_service_cannot_make_is_refused(forks: bool) -> None:
    """Whether it says so beforehand or when it is asked; and nothing stays open."""
    tool = pb.ToolDescriptor()
    tool.CopyFrom(PYTHON)
    tool.stateful, tool.capabilities.fork = True, forks
    async with (
        serving(ToolDouble(tools=[tool])) as double,
        serving(ToolDouble(tools=[])) as other,
        life(other=other.address, python=double.address) as tools,
    ):
        parent = await tools.open_session("a", TASK)
        assert not parent.stateless
        with pytest.raises(ForkRefused, match="cannot be forked") as caught:
            await tools.fork(parent, "b", TASK)
        assert caught.value.permanent
        await until(lambda: len(other.live) == 1, "the close")
        assert len(double.live) == 1


async def test_a_parent_in_the_middle_of_a_call_is_not_forked() -> None:
    async with serving(held(asyncio.Event())) as double, life(python=double.address) as tools:
        parent = await tools.open_session("a", TASK)
        send(parent)
        with pytest.raises(ForkRefused, match="in flight"):
            await tools.fork(parent, "b", TASK)
        parent.close()
