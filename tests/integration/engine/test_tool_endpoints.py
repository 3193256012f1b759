"""Sessions that live at endpoints of their own, move, get lost and are cancelled; several calls in
one turn."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from engine.core.tools.calls import PendingCall
from engine.core.tools.services import ToolServices, ToolSessions
from engine.core.tools.sessions import session as toolsession
from engine.errors import SessionLost, StartupError, ToolServiceFailed
from engine.types import Call
from tests.integration.engine.conftest import MakeWorld
from tests.support.dialogue import ANSWER, by_turn
from tests.support.recipes import ONE
from tests.support.tools import (
    PYTHON,
    ToolDouble,
    add_up,
    broken,
    elsewhere,
    serving,
    text,
    unavailable,
)
from tests.support.waiting import passes, until
from toolwright.common.v1 import reasons_pb2 as reasons
from toolwright.recipe import Tool
from toolwright.rpc.errors import ServiceError
from toolwright.tool.v1 import tool_pb2 as pb
from toolwright.types import StopReason, Task

pytestmark = pytest.mark.quick

ONE_PLUS_ONE = Call(action="<python> 1+1</python>", tool="python", arguments={"code": "1+1"})


def services(double: ToolDouble, **fields: object) -> ToolServices:
    return ToolServices({"python": Tool(service=double.address, **fields)}, "an owner")


def dispatch(session: ToolSessions, turn: int = 0) -> PendingCall:
    """The call of one turn."""
    sent = session.dispatch(ONE_PLUS_ONE, call_id=f"c/{turn}/0", turn=turn, turns_left=3 - turn)
    assert isinstance(sent, PendingCall)
    return sent


async def hang(_request: pb.CallToolRequest) -> pb.CallResult:
    await asyncio.Event().wait()
    raise AssertionError("unreachable")


async def test_a_call_follows_its_session_to_the_endpoint_that_it_is_told() -> None:
    """With the same call_id; later calls and the close go there at once."""
    async with serving(ToolDouble()) as back, serving(ToolDouble()) as front:
        front.faults = [elsewhere(back.address)]
        tools = services(front)
        session = await tools.open_session("s", Task(id="t"))
        for turn in range(2):
            reply = await dispatch(session, turn).result()
            assert reply.outcome.observation == "2"
        session.close()
        await tools.close()
        assert [request.call_id for request in front.asked] == ["c/0/0"]
        assert [request.call_id for request in back.asked] == ["c/0/0", "c/1/0"]
        assert (front.ran, front.closed) == ([], [])
        assert back.closed == [front.opened[0].session_id]


async def test_it_follows_once() -> None:
    """Two may send it to each other."""
    async with serving(ToolDouble()) as back, serving(ToolDouble()) as front:
        front.faults = [elsewhere(back.address)] * 9
        back.faults = [elsewhere(front.address)] * 9
        tools = services(front)
        session = await tools.open_session("s", Task(id="t"))
        with pytest.raises(ToolServiceFailed, match="WRONG_ENDPOINT"):
            await dispatch(session).result()
        session.close()
        await tools.close()
        assert (len(front.asked), len(back.asked)) == (1, 1)


async def test_an_endpoint_that_holds_nothing_any_more_is_left_alone() -> None:
    """A worker that was replaced has an endpoint of the past."""
    async with serving(ToolDouble()) as back, serving(ToolDouble()) as front:
        front.endpoint, back.owners = back.address, front.owners
        tools = services(front, lease_s=0.06)
        keeping = asyncio.create_task(tools.keep_leases())
        session = await tools.open_session("s", Task(id="t"))
        await until(lambda: back.renewals >= 3, "renewals")
        session.close()
        await until(lambda: bool(back.closed), "the close")
        here, there = front.renewals, back.renewals
        await until(lambda: front.renewals >= here + 5, "more renewals")
        assert back.renewals <= there + 1
        keeping.cancel()
        await asyncio.gather(keeping, return_exceptions=True)
        await tools.close()


async def test_a_session_that_a_renewal_does_not_find_ends_its_attempt(world: MakeWorld) -> None:
    """While its call hangs, not when that comes to its end; the next attempt gets another."""
    stateful = pb.ToolDescriptor()
    stateful.CopyFrom(PYTHON)
    stateful.stateful = True
    double = ToolDouble(hang, tools=[stateful])
    here = await world(tools=double, run=ONE)
    here.tables["tools"]["python"]["lease_s"] = 0.15
    async with here.engine() as run:
        await double.called.wait()
        double.run = add_up
        double.owners.clear()  # as after a restart of the service
        (group,) = await run.learner.lease(await run.learner.version())
    (trajectory,) = group.members
    assert (trajectory.stop_reason, trajectory.attempt) == (StopReason.ANSWERED, 1)
    assert len({request.session_id for request in double.opened}) == 2


async def test_a_session_lost_before_its_turns_begin_ends_at_once() -> None:
    async with serving(ToolDouble()) as double:
        tools = services(double, lease_s=0.06)
        session = await tools.open_session("s", Task(id="t"))
        double.owners.clear()
        keeping = asyncio.create_task(tools.keep_leases())
        await until(lambda: double.renewals >= 2, "renewals")
        with pytest.raises(SessionLost, match="is lost"):
            async with session.until_lost():
                await asyncio.Event().wait()
        keeping.cancel()
        await asyncio.gather(keeping, return_exceptions=True)
        await tools.close()


async def test_a_session_whose_worker_is_silent_is_asked_for_at_the_service() -> None:
    """Where another knows of it, it is not lost."""
    async with serving(ToolDouble()) as back, serving(ToolDouble()) as front:
        front.endpoint, back.owners = back.address, front.owners
        tools = services(front, lease_s=0.06)
        session = await tools.open_session("s", Task(id="t"))
        keeping = asyncio.create_task(tools.keep_leases())
        await until(lambda: back.renewals >= 2, "renewals")
        await back.stop()
        seen = front.renewals
        await until(lambda: front.renewals >= seen + 4, "more renewals")
        with pytest.raises(SessionLost, match="is lost"):
            async with asyncio.timeout(20), session.until_lost():
                front.owners.clear()
                await asyncio.Event().wait()
        keeping.cancel()
        await asyncio.gather(keeping, return_exceptions=True)
        await tools.close()


async def test_a_limit_inside_a_held_session_is_no_loss() -> None:
    async with serving(ToolDouble()) as double:
        tools = services(double)
        session = await tools.open_session("s", Task(id="t"))
        with pytest.raises(TimeoutError):
            async with session.until_lost(), asyncio.timeout(0):
                await asyncio.Event().wait()
        session.close()
        await tools.close()


async def test_a_trajectory_that_ends_while_its_call_runs_cancels_it_and_then_closes(
    world: MakeWorld,
) -> None:
    double = ToolDouble(hang)
    here = await world(tools=double, run=ONE, task={"limits": {"seconds": 0.5}})
    async with here.engine() as run:
        (group,) = await run.learner.lease(await run.learner.version())
        await until(lambda: bool(double.closed), "the close")
    assert group.members[0].stop_reason is StopReason.TRAJECTORY_TIMEOUT
    assert double.ended == [double.asked[0].call_id, double.asked[0].session_id]


async def test_a_call_that_has_ended_is_not_cancelled(world: MakeWorld) -> None:
    double = ToolDouble(faults=[None, broken()])
    here = await world(tools=double, run=ONE)
    async with here.engine() as run:
        await run.learner.lease(await run.learner.version())
        await until(lambda: not double.live, "the sessions' end")
    assert double.cancelled == []


async def test_a_service_without_cancelling_is_only_asked_to_close() -> None:
    plain = pb.ToolDescriptor()
    plain.CopyFrom(PYTHON)
    plain.ClearField("capabilities")
    async with serving(ToolDouble(hang, tools=[plain])) as double:
        tools = services(double)
        session = await tools.open_session("s", Task(id="t"))
        dispatch(session)
        await double.called.wait()
        session.close()
        await tools.close()
        assert double.ended == [double.opened[0].session_id]


PAIRS = '''
from dataclasses import replace
from engine.core.protocols.tagged import Tagged
from engine.types import Calls


class Pairs(Tagged):
    """`<python> a; b; c</python>` is a call for each part."""

    def decide(self, text, stop, view, codec):
        found = super().decide(text, stop, view, codec)
        if not isinstance(found, Calls):
            return found
        (call,) = found.calls
        return Calls(
            calls=tuple(
                replace(call, arguments={"code": part.strip()})
                for part in call.arguments["code"].split(";")
            )
        )
'''


async def test_observations_stand_in_the_order_of_the_calls(world: MakeWorld) -> None:
    """Whichever ends first, and whichever has to be sent again."""
    ended: list[str] = []
    last = asyncio.Event()

    async def backwards(request: pb.CallToolRequest) -> pb.CallResult:
        """The first to come waits for the last."""
        code = str(request.arguments["code"])
        if code == "3+3":
            last.set()
        else:
            await last.wait()
        ended.append(code)
        return text(f"{code}={add_up(request).observation[0].text}")

    parallel = pb.ToolDescriptor()
    parallel.CopyFrom(PYTHON)
    parallel.parallel_calls = True
    double = ToolDouble(backwards, faults=[None, unavailable(), None], tools=[parallel])
    here = await world(tools=double, run=ONE, task={"protocol": "./pairs.py:Pairs"})
    (here.folder / "pairs.py").write_text(PAIRS, encoding="utf-8")
    here.sampler._script = by_turn(here.codec, ["<python> 1+1; 2+2; 3+3</python>", ANSWER])
    async with here.engine() as run:
        (group,) = await run.learner.lease(await run.learner.version())
    (trajectory,) = group.members
    assert ended[0] == "3+3"
    calls = sorted(trajectory.calls, key=lambda call: call.index)
    assert [call.call_id.rpartition("/")[2] for call in calls] == ["0", "1", "2"]
    shown = ["1+1=2", "2+2=4", "3+3=6"]
    assert [call.outcome.observation for call in calls] == shown
    assert here.texts(trajectory)[2] == ("tool", "<result> " + "\n".join(shown) + "</result>")
    assert sorted(double.ran) == [call.call_id for call in calls]
    assert len(double.asked) == 4


def test_an_authority_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(StartupError, match=r"tools\.python\.tls_ca: authority .*absent\.pem"):
        ToolServices({"python": Tool(service="x:1", tls_ca=tmp_path / "absent.pem")}, "owner")
    broken_file = tmp_path / "broken.pem"
    broken_file.write_text("nothing", encoding="utf-8")
    with pytest.raises(StartupError, match=r"broken\.pem"):
        ToolServices({"python": Tool(service="x:1", tls_ca=broken_file)}, "owner")


def away(seconds: float) -> ServiceError:
    """The service is not there; it says when it will be."""
    return ServiceError(
        reasons.ERROR_REASON_BACKEND_DOWN, "its backend is down", retry_after=seconds
    )


@pytest.mark.parametrize("fault", [away, unavailable])
async def test_an_outage_is_not_the_trajectory_s_time(
    world: MakeWorld, fault: Callable[[float], ServiceError]
) -> None:
    """Nor is it while a service is full."""
    double = ToolDouble(faults=[fault(1.0)] * 3)
    here = await world(tools=double, run=ONE, task={"limits": {"seconds": 2.0}})
    async with here.engine() as run:
        (group,) = await run.learner.lease(await run.learner.version())
    assert group.members[0].stop_reason is StopReason.ANSWERED
    assert group.members[0].attempt == 0


async def test_a_service_that_goes_and_comes_back(world: MakeWorld) -> None:
    """Its port is closed for longer than the trajectory may last; the session is still there."""
    double = ToolDouble(hang)
    async with serving(double):
        here = await world(run=ONE, task={"limits": {"seconds": 2.0}})
        here.tables["tools"]["python"] |= {"service": double.address}
        async with here.engine() as run:
            leased = asyncio.create_task(run.learner.lease(await run.learner.version(), wait=40))
            await double.called.wait()
            await double.stop()
            await passes(3.0, "the service is away")
            double.run = add_up
            async with serving(double, int(double.address.rpartition(":")[2])):
                (group,) = await leased
    assert group.members[0].stop_reason is StopReason.ANSWERED
    assert group.members[0].attempt == 0


class Frozen(ToolDouble):
    """From its first call until that session is closed it answers nothing."""

    def __init__(self) -> None:
        super().__init__(self._first_hangs)

    async def _first_hangs(self, request: pb.CallToolRequest) -> pb.CallResult:
        if request.session_id == self.opened[0].session_id:
            await asyncio.Event().wait()
        return add_up(request)

    async def ListTools(self, request: pb.ListToolsRequest, context: Any) -> pb.ListToolsResponse:
        if self.asked and not self.closed:
            await asyncio.Event().wait()
        return await super().ListTools(request, context)


async def test_the_limit_passes_while_a_service_is_frozen(
    world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The attempt fails, and the next one finds a service that works."""
    monkeypatch.setattr(toolsession, "REACH_SECONDS", 0.2)
    here = await world(tools=Frozen(), run=ONE, task={"limits": {"seconds": 2.0}})
    async with here.engine() as run:
        (group,) = await run.learner.lease(await run.learner.version())
    assert group.members[0].stop_reason is StopReason.ANSWERED
    assert group.members[0].attempt == 1
