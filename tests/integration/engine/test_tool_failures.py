"""Failures of tool services: retried, started again, masked; and no session is left."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import grpc
import pytest

from bench.scripted import ScriptRequest
from engine.core.rollout import attempts
from engine.core.text.codec import HuggingFaceCodec
from engine.serving.crew import in_process
from engine.serving.journal.logs import LogState
from engine.serving.journal.reader import reading
from tests.integration.engine.conftest import MakeWorld
from tests.support.dialogue import ANSWER
from tests.support.engines import Learner
from tests.support.recipes import ONE, PAIR
from tests.support.tool_sessions import TASK, client
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
from toolwright.rpc.channel import open_channel
from toolwright.rpc.errors import ServiceError, TransportError
from toolwright.tool.v1 import tool_pb2 as pb
from toolwright.types import Status, StopReason

pytestmark = pytest.mark.quick


async def test_a_failure_of_infrastructure_is_retried_with_the_same_call_id(
    world: MakeWorld,
) -> None:
    """Nothing ran, or the answer was lost: the effect happens once, and the policy sees nothing."""
    down = ServiceError(reasons.ERROR_REASON_BACKEND_DOWN, "restarting", retry_after=0.0)
    here = await world(tools=ToolDouble(faults=[unavailable(), down]), run=ONE)
    trajectory = await here.trajectory()
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
    trajectory = await here.trajectory()
    assert [request.call_id.split("/")[1] for request in here.tools.asked] == ["b1r0a0", "b1r0a1"]
    assert (trajectory.stop_reason, trajectory.attempt) == (StopReason.ANSWERED, 1)


async def test_a_task_of_which_nobody_makes_tools_is_a_bad_row(world: MakeWorld) -> None:
    """As ToolMaker does whose every answer is unfit: the next task is taken at once."""
    unfit = ServiceError(reasons.ERROR_REASON_BACKEND_DOWN, "made no tools that may be used")
    here = await world(tools=ToolDouble(open_faults=[unfit]), run=ONE)
    group = await here.group()
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
    group = await here.group()
    assert asked == 4
    assert group.members[0].calls[0].outcome.observation == "2"


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
    group = await here.group()
    assert group.members[0].attempt == 1
    assert found == ["g0000000-0/b1r0a1"]


@pytest.mark.parametrize(
    ("fault", "reason"),
    [(broken, StopReason.INFRASTRUCTURE_ERROR), (session_lost, StopReason.SESSION_LOST)],
)
async def test_the_attempts_end_and_the_member_is_masked(
    world: MakeWorld,
    monkeypatch: pytest.MonkeyPatch,
    fault: Callable[[], ServiceError],
    reason: StopReason,
) -> None:
    """The other members go on; what the lost one's tool said is nowhere."""
    monkeypatch.setattr(attempts, "LEAST_ATTEMPTS", 2)

    def flaky(request: pb.CallToolRequest) -> pb.CallResult:
        if request.call_id.startswith("g0000000-1"):
            raise fault()
        return add_up(request)

    here = await world(tools=ToolDouble(flaky), run=PAIR, engine={"patience_s": 1e-6})
    async with here.engine() as run:
        (group,) = await run.learner.lease()
        await until(lambda: not here.tools.live, "the sessions' end")
        run.engine.status.line()  # brings the metrics up to date
        count = run.engine.metrics.registry.get_sample_value
        failed = count("toolwright_engine_attempts_failed_total", {"reason": reason.name.lower()})
        # With no patience a retried open may cost the other member an attempt, too.
        assert failed is not None
        assert failed >= 2
    living, lost = group.members
    assert living.reward == 1.0
    assert (lost.status, lost.stop_reason) == (Status.ERRORED, reason)
    assert (lost.masked, lost.attempt, lost.reward, lost.sequences) == (True, 1, 0.0, ())
    assert lost.events[0].kind == "attempt_failed"
    assert str(fault()) in lost.events[0].data["error"]
    sessions = [r.session_id for r in here.tools.asked if r.call_id.startswith("g0000000-1")]
    assert len(set(sessions)) == len(sessions) == 2


async def test_a_group_that_was_lost_whole_is_run_again(
    world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(in_process, "BACKOFF", Backoff(0.01, 0.01))
    monkeypatch.setattr(attempts, "LEAST_ATTEMPTS", 2)
    double = ToolDouble(faults=[broken()] * 4)
    here = await world(tools=double, run=PAIR, engine={"patience_s": 1e-6})
    group = await here.group()
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
    group = await here.group()
    assert group.info.id == "g0000000"
    assert group.members[0].stop_reason is StopReason.ANSWERED


@pytest.mark.parametrize(("first", "attempt"), [(unavailable, 0), (broken, 1)])
async def test_a_session_that_cannot_be_opened_ends_the_attempt(
    world: MakeWorld, first: Callable[[], ServiceError], attempt: int
) -> None:
    """After the retries that a busy service asks for; what another service opened is closed."""
    double = ToolDouble(open_faults=[first(), None])
    async with serving(ToolDouble(tools=[])) as other:
        here = await world(tools=double, run=ONE)
        here.tables["tools"]["other"] = {"service": other.address}
        assert (await here.trajectory()).attempt == attempt
        await until(lambda: not other.live, "the sessions' end")
        assert (double.opened[0] == double.opened[1]) is (attempt == 0)
        assert {o.session_id for o in other.opened} == set(other.closed)


async def test_a_cancelled_opening_leaves_no_session() -> None:
    double = ToolDouble(open_seconds=0.3)
    async with client(double) as tools:
        opening = asyncio.create_task(tools.open_session("s", TASK))
        await until(lambda: bool(double.live), "the session")
        opening.cancel()
        await asyncio.gather(opening, return_exceptions=True)
        await tools.close()
        assert double.closed == [o.session_id for o in double.opened]
        assert not double.live


async def test_leases_are_renewed_for_the_owner(world: MakeWorld) -> None:
    here = await world(run=ONE)
    here.tables["tools"]["python"]["lease_s"] = 0.3
    async with here.engine() as run:
        await until(lambda: here.tools.renewals >= 4, "renewals")
        assert here.tools.opened[0].owner == run.engine.journal.owner


async def test_the_token_goes_everywhere(world: MakeWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """Engine, tool service and learner share it; without it a caller is refused."""
    seen: set[str] = set()

    class Guarded(ToolDouble):
        async def CallTool(self, request: pb.CallToolRequest, context: Any) -> pb.CallToolResponse:
            seen.update(str(v) for k, v in context.invocation_metadata() if k == "authorization")
            answer: pb.CallToolResponse = await super().CallTool(request, context)
            return answer

    monkeypatch.setenv("TOOLWRIGHT_TOKEN", "secret")
    here = await world(tools=Guarded(), run=ONE)
    async with here.engine() as run:
        await run.learner.lease()
        async with open_channel(here.tables["run"]["engine"]) as channel:
            with pytest.raises(TransportError) as caught:
                await Learner(channel).status()
            assert caught.value.code is grpc.StatusCode.UNAUTHENTICATED
    assert seen == {"Bearer secret"}


async def test_many_at_once_lose_nothing(world: MakeWorld, codec: HuggingFaceCodec) -> None:
    """Groups of trajectories with calls of different lengths: every one gets its own answers."""

    async def reply(request: pb.CallToolRequest) -> pb.CallResult:
        code = str(request.arguments["code"])
        await asyncio.sleep(int(code.partition("+")[0]) % 7 / 200)
        return text(f"{code}={add_up(request).observation[0].text}")

    def script(request: ScriptRequest) -> Sequence[int]:
        said = codec.decode(request.input_ids)
        number = int(said.partition("what is ")[2].partition("+")[0])
        turn = said.count("</result>")
        reply = ANSWER if turn == 3 else f"<python>{number * 10 + turn}+1</python>"
        return codec.encode(reply)

    here = await world(
        script=script,
        tools=ToolDouble(reply, tools=[PYTHON]),
        run={"steps": 1, "groups_per_step": 12, "group_size": 4},
    )
    async with here.engine() as run:
        groups = await run.learner.lease(count=12)
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
