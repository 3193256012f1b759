"""Sessions that live at endpoints of their own, move, get lost and are cancelled; several calls in
one turn."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from engine.core.tools.services import ToolServices
from engine.core.tools.sessions import session as toolsession
from engine.errors import SessionLost, StartupError, ToolServiceFailed
from tests.integration.engine.conftest import MakeWorld
from tests.support.dialogue import ANSWER, by_turn
from tests.support.recipes import ONE
from tests.support.tool_sessions import TASK, client, said, send
from tests.support.tools import (
    PYTHON,
    ToolDouble,
    add_up,
    broken,
    elsewhere,
    held,
    serving,
    text,
    unavailable,
)
from tests.support.waiting import until
from toolwright.common.v1 import reasons_pb2 as reasons
from toolwright.recipe import Tool
from toolwright.rpc.errors import ServiceError
from toolwright.tool.v1 import tool_pb2 as pb
from toolwright.types import StopReason

pytestmark = pytest.mark.quick

SHORT = {"lease_s": 0.06, "renews": True}
"""Leases that are renewed every few milliseconds."""


def python(**fields: Any) -> pb.ToolDescriptor:
    """The tool `python` with other fields."""
    tool = pb.ToolDescriptor()
    tool.CopyFrom(PYTHON)
    tool.MergeFrom(pb.ToolDescriptor(**fields))
    return tool


async def test_a_call_follows_its_session_to_the_endpoint_that_it_is_told() -> None:
    """With the same call_id; later calls and the close go there at once."""
    front = ToolDouble()
    async with serving(ToolDouble()) as back, client(front) as tools:
        front.faults = [elsewhere(back.address)]
        session = await tools.open_session("s", TASK)
        assert [await said(session, turn=turn) for turn in range(2)] == ["2", "2"]
        session.close()
        await tools.close()
        assert [request.turn for request in front.asked] == [0]
        assert [request.turn for request in back.asked] == [0, 1]
        assert front.asked[0].call_id == back.asked[0].call_id
        assert (front.ran, front.closed) == ([], [])
        assert back.closed == [front.opened[0].session_id]


async def test_it_follows_once() -> None:
    """Two may send it to each other."""
    front = ToolDouble()
    async with serving(ToolDouble()) as back, client(front) as tools:
        front.faults = [elsewhere(back.address)] * 9
        back.faults = [elsewhere(front.address)] * 9
        session = await tools.open_session("s", TASK)
        with pytest.raises(ToolServiceFailed, match="WRONG_ENDPOINT"):
            await said(session)
        assert (len(front.asked), len(back.asked)) == (1, 1)


async def test_a_session_lives_where_it_was_placed() -> None:
    """Calls, renewals and the close go to the endpoint that the service names. Once it holds
    nothing, it is left alone: a worker that was replaced has an endpoint of the past."""
    front = ToolDouble()
    async with serving(ToolDouble()) as back, client(front, **SHORT) as tools:
        front.endpoint, back.owners = back.address, front.owners
        session = await tools.open_session("s", TASK)
        assert await said(session) == "2"
        await until(lambda: back.renewals >= 3, "renewals")
        session.close()
        await until(lambda: bool(back.closed), "the close")
        assert (front.asked, front.closed) == ([], [])
        here, there = front.renewals, back.renewals
        await until(lambda: front.renewals >= here + 5, "more renewals")
        assert back.renewals <= there + 1


async def test_a_session_that_a_renewal_does_not_find_ends_its_attempt(world: MakeWorld) -> None:
    """While its call hangs, not when that comes to its end; the next attempt gets another."""
    double = held(asyncio.Event())
    double.tools = [python(stateful=True)]
    here = await world(tools=double, run=ONE)
    here.tables["tools"]["python"]["lease_s"] = 0.15
    async with here.engine() as run:
        await double.called.wait()
        double.run = add_up
        double.owners.clear()  # as after a restart of the service
        (group,) = await run.learner.lease()
    (trajectory,) = group.members
    assert (trajectory.stop_reason, trajectory.attempt) == (StopReason.ANSWERED, 1)
    assert len({request.session_id for request in double.opened}) == 2


async def test_a_session_is_lost_when_no_service_knows_it() -> None:
    """The service decides for a worker that is silent. A limit inside the block is not a loss."""
    front = ToolDouble()
    async with serving(ToolDouble()) as back, client(front, **SHORT) as tools:
        front.endpoint, back.owners = back.address, front.owners
        session = await tools.open_session("s", TASK)
        await until(lambda: back.renewals >= 2, "renewals")
        await back.stop()
        seen = front.renewals
        await until(lambda: front.renewals >= seen + 4, "more renewals")
        with pytest.raises(TimeoutError):
            async with session.until_lost(), asyncio.timeout(0):
                await asyncio.Event().wait()
        with pytest.raises(SessionLost, match="is lost"):
            async with asyncio.timeout(20), session.until_lost():
                front.owners.clear()
                await asyncio.Event().wait()
        with pytest.raises(SessionLost, match="is lost"):  # known before its turns begin
            async with session.until_lost():
                await asyncio.Event().wait()


async def test_a_trajectory_that_ends_cancels_its_call_and_then_closes(world: MakeWorld) -> None:
    double = held(asyncio.Event())
    here = await world(tools=double, run=ONE, task={"limits": {"seconds": 0.5}})
    assert (await here.trajectory()).stop_reason is StopReason.TRAJECTORY_TIMEOUT
    assert double.ended == [double.asked[0].call_id, double.asked[0].session_id]


async def test_only_a_running_call_that_can_be_cancelled_is(world: MakeWorld) -> None:
    double = ToolDouble(faults=[None, broken()])
    here = await world(tools=double, run=ONE)
    await here.trajectory()
    assert double.cancelled == []
    double = held(asyncio.Event())
    double.tools = [python()]
    double.tools[0].ClearField("capabilities")
    async with client(double) as tools:
        session = await tools.open_session("s", TASK)
        send(session)
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

    parallel = [python(parallel_calls=True)]
    double = ToolDouble(backwards, faults=[None, unavailable(), None], tools=parallel)
    here = await world(tools=double, run=ONE, task={"protocol": "./pairs.py:Pairs"})
    (here.folder / "pairs.py").write_text(PAIRS, encoding="utf-8")
    here.sampler._script = by_turn(here.codec, ["<python> 1+1; 2+2; 3+3</python>", ANSWER])
    trajectory = await here.trajectory()
    assert ended[0] == "3+3"
    calls = sorted(trajectory.calls, key=lambda call: call.index)
    assert [call.call_id.rpartition("/")[2] for call in calls] == ["0", "1", "2"]
    shown = ["1+1=2", "2+2=4", "3+3=6"]
    assert [call.outcome.observation for call in calls] == shown
    assert here.texts(trajectory)[2] == ("tool", "<result> " + "\n".join(shown) + "</result>")
    assert sorted(double.ran) == [call.call_id for call in calls]
    assert len(double.asked) == 4


def test_an_authority_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    broken_file = tmp_path / "broken.pem"
    broken_file.write_text("nothing", encoding="utf-8")
    for file in (broken_file, tmp_path / "absent.pem"):
        with pytest.raises(StartupError, match=rf"tools\.python\.tls_ca: .*{file.name}"):
            ToolServices({"python": Tool(service="x:1", tls_ca=file)}, "owner")


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
    trajectory = await here.trajectory()
    assert (trajectory.stop_reason, trajectory.attempt) == (StopReason.ANSWERED, 0)


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


async def test_a_frozen_service_costs_time(
    world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The attempt fails, and the next one finds a service that works."""
    monkeypatch.setattr(toolsession, "REACH_SECONDS", 0.2)
    here = await world(tools=Frozen(), run=ONE, task={"limits": {"seconds": 2.0}})
    trajectory = await here.trajectory()
    assert (trajectory.stop_reason, trajectory.attempt) == (StopReason.ANSWERED, 1)
