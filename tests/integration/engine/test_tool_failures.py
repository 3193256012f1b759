"""Failures of tool services: retried, started again, masked; and no session is left."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import grpc
import pytest

from bench.scripted import ScriptRequest
from engine.core.rollout import attempts
from engine.core.tools.services import ToolServices
from engine.errors import StartupError
from engine.serving.crew import in_process
from engine.serving.journal.logs import LogState
from engine.serving.journal.reader import reading
from tests.integration.engine.conftest import MakeWorld
from tests.support.dialogue import ANSWER, CALL
from tests.support.recipes import ONE, PAIR
from tests.support.tools import (
    PYTHON,
    ToolDouble,
    add_up,
    broken,
    serving,
    session_lost,
    text,
    unavailable,
)
from tests.support.waiting import blocks, passes, until
from toolwright.common.v1 import reasons_pb2 as reasons
from toolwright.process.backoff import Backoff
from toolwright.recipe import Tool
from toolwright.rpc.errors import ServiceError
from toolwright.tool.v1 import tool_pb2 as pb
from toolwright.types import Status, StopReason, Task

pytestmark = pytest.mark.quick


async def test_a_failure_of_infrastructure_is_retried_with_the_same_call_id(
    world: MakeWorld,
) -> None:
    """Nothing ran, or the answer was lost: the effect happens once, and the policy sees nothing."""
    down = ServiceError(reasons.ERROR_REASON_BACKEND_DOWN, "restarting", retry_after=0.0)
    here = await world(tools=ToolDouble(faults=[unavailable(), down]), run=ONE)
    async with here.engine() as run:
        (group,) = await run.learner.lease(await run.learner.version())
    (trajectory,) = group.members
    assert len(here.tools.asked) == 3
    assert here.tools.asked[0] == here.tools.asked[1] == here.tools.asked[2]
    assert len(here.tools.ran) == 1
    assert (trajectory.stop_reason, trajectory.attempt) == (StopReason.ANSWERED, 0)
    assert trajectory.calls[0].outcome.observation == "2"
    assert len(here.tools.opened) == 1


async def test_a_call_that_is_refused_for_good_is_not_asked_for_again(world: MakeWorld) -> None:
    """The policy sees nothing of it: the trajectory starts again, and may call something else."""
    spent = ServiceError(reasons.ERROR_REASON_BACKEND_DOWN, "the budget is spent")
    here = await world(tools=ToolDouble(faults=[spent]), run=ONE)
    async with here.engine() as run:
        (group,) = await run.learner.lease(await run.learner.version())
    (trajectory,) = group.members
    assert [request.call_id.split("/")[1] for request in here.tools.asked] == ["b1r0a0", "b1r0a1"]
    assert (trajectory.stop_reason, trajectory.attempt) == (StopReason.ANSWERED, 1)


async def test_a_task_of_which_nobody_makes_tools_is_a_bad_row(world: MakeWorld) -> None:
    """As ToolMaker does whose every answer is unfit: the next task is taken at once."""
    unfit = ServiceError(reasons.ERROR_REASON_BACKEND_DOWN, "made no tools that may be used")
    here = await world(tools=ToolDouble(open_faults=[unfit]), run=ONE)
    async with here.engine() as run:
        (group,) = await run.learner.lease(await run.learner.version())
    assert len(here.tools.opened) == 2
    assert group.members[0].stop_reason is StopReason.ANSWERED


async def test_a_long_call_is_asked_for_again_and_runs_once(world: MakeWorld) -> None:
    """`running` is no answer: the same call_id is asked until there is one."""
    asked = 0

    class Slow(ToolDouble):
        async def CallTool(self, request: pb.CallToolRequest, context: Any) -> pb.CallToolResponse:
            nonlocal asked
            asked += 1
            if asked < 4:
                return pb.CallToolResponse(running=pb.Running())
            answer: pb.CallToolResponse = await super().CallTool(request, context)
            return answer

    here = await world(tools=Slow(), run=ONE)
    async with here.engine() as run:
        (group,) = await run.learner.lease(await run.learner.version())
    assert asked == 4
    assert group.members[0].calls[0].outcome.observation == "2"


async def test_a_lost_session_starts_the_trajectory_again_in_another(world: MakeWorld) -> None:
    here = await world(tools=ToolDouble(faults=[session_lost()]), run=ONE)
    async with here.engine() as run:
        (group,) = await run.learner.lease(await run.learner.version())
        await until(lambda: not here.tools.live, "the sessions' end")
    (trajectory,) = group.members
    assert (trajectory.attempt, trajectory.stop_reason) == (1, StopReason.ANSWERED)
    first, second = (o.session_id for o in here.tools.opened)
    assert first != second
    assert here.tools.closed == [first, second]
    (call,) = trajectory.calls
    assert call.call_id == f"{trajectory.id}/b1r0a1/0/0"
    assert here.texts(trajectory)[1][1] == CALL


async def test_an_attempt_that_was_given_up_is_gone_on_with_in_no_later_life(
    world: MakeWorld,
) -> None:
    """Its sessions are closed, so its log is given up before the next attempt begins."""
    found: list[str] = []

    def losing(request: pb.CallToolRequest) -> pb.CallResult:
        if "/b1r0a0/" in request.call_id:
            raise session_lost()
        blocks(0.2, "the journal commits what was appended before this call")
        with reading(here.folder / "run") as journal:
            found.extend(one.name for one in journal.attempts(LogState.OPEN))
        return add_up(request)

    here = await world(tools=ToolDouble(losing), run=ONE)
    async with here.engine() as run:
        (group,) = await run.learner.lease(await run.learner.version())
    assert group.members[0].attempt == 1
    assert found == ["g0000000-0/b1r0a1"]


async def test_the_attempts_end_and_the_member_is_masked(
    world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other members go on; what the lost one's tool said is nowhere."""
    monkeypatch.setattr(attempts, "LEAST_ATTEMPTS", 2)

    def flaky(request: pb.CallToolRequest) -> pb.CallResult:
        if request.call_id.startswith("g0000000-1"):
            raise broken()
        return add_up(request)

    here = await world(tools=ToolDouble(flaky), run=PAIR, engine={"patience_s": 1e-6})
    async with here.engine() as run:
        (group,) = await run.learner.lease(await run.learner.version())
        await until(lambda: not here.tools.live, "the sessions' end")
        run.engine.status.line()  # brings the metrics up to date
        count = run.engine.metrics.registry.get_sample_value
        failed = count(
            "toolwright_engine_attempts_failed_total", {"reason": "infrastructure_error"}
        )
        # With no patience a retried open may cost the other member an attempt, too.
        assert failed is not None
        assert failed >= 2
    living, lost = group.members
    assert living.reward == 1.0
    assert (lost.status, lost.stop_reason) == (Status.ERRORED, StopReason.INFRASTRUCTURE_ERROR)
    assert (lost.masked, lost.attempt, lost.reward, lost.sequences) == (True, 1, 0.0, ())
    assert lost.events[0].kind == "attempt_failed"
    assert "the service has a fault" in lost.events[0].data["error"]
    assert len([r for r in here.tools.asked if r.call_id.startswith("g0000000-1")]) == 2


async def test_a_member_whose_sessions_are_lost_says_so(
    world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attempts, "LEAST_ATTEMPTS", 2)

    def losing(request: pb.CallToolRequest) -> pb.CallResult:
        if request.call_id.startswith("g0000000-1"):
            raise session_lost()
        return add_up(request)

    here = await world(tools=ToolDouble(losing), run=PAIR, engine={"patience_s": 1e-6})
    async with here.engine() as run:
        (group,) = await run.learner.lease(await run.learner.version())
    lost = group.members[1]
    assert (lost.status, lost.stop_reason) == (Status.ERRORED, StopReason.SESSION_LOST)
    sessions = [r.session_id for r in here.tools.asked if "g0000000-1" in r.session_id]
    assert len(set(sessions)) == len(sessions) == 2


async def test_a_group_that_was_lost_whole_is_run_again(
    world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(in_process, "BACKOFF", Backoff(0.01, 0.01))
    monkeypatch.setattr(attempts, "LEAST_ATTEMPTS", 2)
    double = ToolDouble(faults=[broken()] * 4)
    here = await world(tools=double, run=PAIR, engine={"patience_s": 1e-6})
    async with here.engine() as run:
        (group,) = await run.learner.lease(await run.learner.version())
    assert [t.stop_reason for t in group.members] == [StopReason.ANSWERED] * 2
    assert [t.calls[0].call_id.split("/")[1] for t in group.members] == ["b1r1a0"] * 2


async def test_a_drain_does_not_wait_for_a_group_that_cannot_run(world: MakeWorld) -> None:
    """Its position stays open: the next life runs it."""
    faults = [broken()] * 99
    here = await world(tools=ToolDouble(faults=faults), run=ONE, engine={"patience_s": 0.01})
    async with here.engine() as run:
        await until(lambda: len(here.tools.asked) >= 3, "three attempts")
        await passes(0.05, "the group waits for its next attempt")
        async with asyncio.timeout(5):
            await run.drain()
    here.tools.faults.clear()
    async with here.engine() as run:
        (group,) = await run.learner.lease(await run.learner.version())
    assert group.info.id == "g0000000"
    assert group.members[0].stop_reason is StopReason.ANSWERED


async def test_a_session_that_cannot_be_opened_ends_the_attempt(world: MakeWorld) -> None:
    """After the retries that a busy service asks for; what another service opened is closed."""
    double = ToolDouble(open_faults=[unavailable(), None, broken(), None])
    async with serving(ToolDouble(tools=[])) as other:
        here = await world(tools=double, run=ONE)
        here.tables["tools"]["other"] = {"service": other.address}
        # The first life of the trajectory gets its session at the second try.
        async with here.engine() as run:
            (group,) = await run.learner.lease(await run.learner.version())
        assert group.members[0].attempt == 0
        assert double.opened[0] == double.opened[1]

    async with serving(ToolDouble(tools=[])) as other:
        double = ToolDouble(open_faults=[broken(), None])
        here = await world(tools=double, run={**ONE, "folder": "other"})
        here.tables["tools"]["other"] = {"service": other.address}
        async with here.engine() as run:
            (group,) = await run.learner.lease(await run.learner.version())
            await until(lambda: not other.live and not double.live, "the sessions' end")
        assert group.members[0].attempt == 1
        assert {o.session_id for o in other.opened} == set(other.closed)


async def test_a_cancelled_opening_leaves_no_session(world: MakeWorld) -> None:
    double = ToolDouble(open_seconds=0.3)
    async with serving(double):
        services = ToolServices({"python": Tool(service=double.address)}, "owner")
        await services.open()
        opening = asyncio.create_task(services.open_session("s", Task(id="t")))
        await until(lambda: bool(double.live), "the session")
        opening.cancel()
        await asyncio.gather(opening, return_exceptions=True)
        await services.close()
        assert double.closed == [o.session_id for o in double.opened]
        assert not double.live


async def test_a_session_lives_where_it_was_placed(world: MakeWorld) -> None:
    """The service names another endpoint: calls, renewals and the close go there."""
    async with serving(ToolDouble()) as back:
        front = ToolDouble(endpoint=back.address)
        back.owners = front.owners  # what one opens the other holds
        here = await world(tools=front, run=ONE)
        here.tables["tools"]["python"]["lease_s"] = 0.15
        release = asyncio.Event()

        async def slow(request: pb.CallToolRequest) -> pb.CallResult:
            await release.wait()
            return add_up(request)

        back.run = slow
        async with here.engine() as run:
            await back.called.wait()
            await until(lambda: back.renewals >= 2, "renewals")
            release.set()
            (group,) = await run.learner.lease(await run.learner.version())
            await until(lambda: bool(back.closed), "the close")
        assert len(front.asked) == 0
        assert len(back.asked) == 1
        assert front.closed == []
        assert back.closed == [front.opened[0].session_id]
        assert group.members[0].stop_reason is StopReason.ANSWERED


async def test_leases_are_renewed_for_the_owner(world: MakeWorld) -> None:
    here = await world(run=ONE)
    here.tables["tools"]["python"]["lease_s"] = 0.3
    async with here.engine() as run:
        await until(lambda: here.tools.renewals >= 4, "renewals")
        assert here.tools.opened[0].owner == run.engine.journal.owner


async def test_the_token_goes_with_every_call(
    world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Engine, tool service and learner share it; who has it not is not let in."""
    from tests.support.engines import Learner
    from toolwright.rpc.channel import open_channel
    from toolwright.rpc.errors import TransportError

    seen: set[str] = set()

    class Guarded(ToolDouble):
        async def CallTool(self, request: pb.CallToolRequest, context: Any) -> pb.CallToolResponse:
            seen.update(str(v) for k, v in context.invocation_metadata() if k == "authorization")
            answer: pb.CallToolResponse = await super().CallTool(request, context)
            return answer

    monkeypatch.setenv("TOOLWRIGHT_TOKEN", "secret")
    here = await world(tools=Guarded(), run=ONE)
    async with here.engine() as run:
        await run.learner.lease(await run.learner.version())
        async with open_channel(here.tables["run"]["engine"]) as channel:
            with pytest.raises(TransportError) as caught:
                await Learner(channel).status()
            assert caught.value.code is grpc.StatusCode.UNAUTHENTICATED
    assert seen == {"Bearer secret"}


async def test_many_at_once_lose_nothing(world: MakeWorld) -> None:
    """Groups of trajectories with calls of different lengths: every one gets its own answers."""

    async def reply(request: pb.CallToolRequest) -> pb.CallResult:
        code = str(request.arguments["code"])
        await asyncio.sleep(int(code.partition("+")[0]) % 7 / 200)
        return text(f"{code}={add_up(request).observation[0].text}")

    holder: list[Any] = []

    def script(request: ScriptRequest) -> Sequence[int]:
        codec = holder[0].codec
        said = codec.decode(request.input_ids)
        number = int(said.partition("what is ")[2].partition("+")[0])
        turn = said.count("</result>")
        reply = ANSWER if turn == 3 else f"<python>{number * 10 + turn}+1</python>"
        return codec.encode(reply)  # type: ignore[no-any-return]

    here = await world(
        script=script,
        tools=ToolDouble(reply, tools=[PYTHON]),
        run={"steps": 1, "groups_per_step": 12, "group_size": 4},
    )
    holder.append(here)
    async with here.engine() as run:
        groups = await run.learner.lease(await run.learner.version(), count=12)
        await until(lambda: not here.tools.live, "the sessions' end")
    assert len(groups) == 12
    for group in groups:
        for trajectory in group.members:
            number = trajectory.task.metadata["number"]
            assert [c.outcome.observation for c in trajectory.calls] == [
                f"{number * 10 + turn}+1={number * 10 + turn + 1}" for turn in range(3)
            ]
            assert [c.turn for c in trajectory.calls] == [0, 1, 2]
    assert len(here.tools.ran) == len(set(here.tools.ran)) == 12 * 4 * 3


async def test_a_service_that_refuses_every_session_for_good_ends_the_engine(
    world: MakeWorld,
) -> None:
    """Each task costs one attempt, and there is an end to the tasks that a run may drop."""
    refusal = ServiceError(reasons.ERROR_REASON_NOT_OWNER, "this engine may not come in")
    double = ToolDouble(open_faults=[refusal] * 99)
    here = await world(tools=double, run=PAIR, engine={"max_bad_rows": 3})
    with pytest.raises(BaseExceptionGroup) as caught:
        async with here.engine() as run:
            async with asyncio.timeout(10):
                await run.task
    assert caught.group_contains(StartupError)
    assert len({request.session_id for request in double.opened}) == len(double.opened)
