"""Calls by StreamCalls: many of many sessions on few streams, and what breaks them."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest

from engine.core.tools.link import endpoint as link
from engine.core.tools.link.call_stream import error_of
from engine.errors import ToolServiceFailed
from tests.support.tool_sessions import TASK, call_id, client, said, send
from tests.support.tools import InStream, ToolDouble, add_up, text
from tests.support.waiting import passes, until
from toolwright.common.v1 import reasons_pb2 as reasons
from toolwright.rpc.errors import ServiceError, TransportError
from toolwright.tool.v1 import tool_pb2 as pb

pytestmark = pytest.mark.quick

Answers = AsyncIterator[pb.StreamCallsResponse]


class Counting(ToolDouble):
    """Counts streams and calls that came by CallTool itself; `end` ends one stream."""

    def __init__(self, *arguments: Any, **how: Any) -> None:
        super().__init__(*arguments, **how)
        self.begun = 0
        self.alone = 0
        self.end: asyncio.Event | None = None
        self.ends_with = grpc.StatusCode.INTERNAL

    async def StreamCalls(self, requests: Any, context: Any) -> Answers:
        self.begun += 1
        answers = super().StreamCalls(requests, context)
        while self.end is None:
            yield await anext(answers)
        following = asyncio.create_task(anext(answers))  # type: ignore[arg-type]
        ending = asyncio.create_task(self.end.wait())
        while True:
            await asyncio.wait((following, ending), return_when=asyncio.FIRST_COMPLETED)
            if ending.done():
                following.cancel()
                await context.abort(self.ends_with, "the stream is cut")
            yield following.result()
            following = asyncio.create_task(anext(answers))  # type: ignore[arg-type]

    async def CallTool(self, request: pb.CallToolRequest, context: Any) -> pb.CallToolResponse:
        self.alone += not isinstance(context, InStream)
        answer: pb.CallToolResponse = await super().CallTool(request, context)
        return answer


def later_than(go_on: asyncio.Event) -> Any:
    """A tool that adds up; every call but the first turn's waits for `go_on`."""

    async def answer(request: pb.CallToolRequest) -> pb.CallResult:
        if request.turn:
            await go_on.wait()
        return add_up(request)

    return answer


async def test_many_sessions_share_few_streams_and_each_call_gets_its_own_answer() -> None:
    async def later(request: pb.CallToolRequest) -> pb.CallResult:
        await asyncio.sleep(random.random() / 50)
        return text(request.call_id)

    double = Counting(later)
    async with client(double) as tools:

        async def trajectory(number: int) -> None:
            session = await tools.open_session(f"s{number}", TASK)
            for turn in range(5):
                assert await said(session, turn=turn) == call_id(session, turn)
            session.close()

        await asyncio.gather(*(trajectory(number) for number in range(60)))
        await tools.close()
        assert 1 <= double.begun <= link.MOST_STREAMS
        assert double.alone == 0
        assert len(double.ran) == len(set(double.ran)) == 300
        assert tools.statistics()["python"].calls_in_flight == 0


async def test_an_endpoint_has_no_more_streams_than_the_bound(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One at first, then one for every few calls."""
    monkeypatch.setattr(link, "MOST_STREAMS", 3)
    monkeypatch.setattr(link, "CALLS_A_STREAM", 2)
    go_on = asyncio.Event()
    double = Counting(later_than(go_on))
    async with client(double) as tools:
        session = await tools.open_session("s", TASK)
        await said(session)
        assert double.begun == 1
        pending = [send(session, "1", turn) for turn in range(1, 33)]
        await until(lambda: double.begun == 3, "the last stream")
        go_on.set()
        for one in pending:
            assert (await one.result()).outcome.observation == "1"
        assert double.begun == 3


async def test_a_service_without_streams_is_called_alone_and_that_is_remembered() -> None:
    double = Counting(streams=False)
    async with client(double) as tools:
        session = await tools.open_session("s", TASK)
        assert [await said(session, turn=turn) for turn in range(4)] == ["2"] * 4
        assert (double.begun, double.alone) == (1, 4)
        assert tools.statistics()["python"].retries == {}


@pytest.mark.parametrize(
    "ends_with", [grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN]
)
async def test_calls_of_a_stream_that_breaks_are_asked_again_and_run_once(
    ends_with: grpc.StatusCode,
) -> None:
    go_on = asyncio.Event()
    double = Counting(later_than(go_on))
    async with client(double) as tools:
        double.end, double.ends_with = asyncio.Event(), ends_with
        sessions = [await tools.open_session(f"s{n}", TASK) for n in range(5)]
        for session in sessions:
            await said(session)
        pending = [send(session, "2+3", turn=1) for session in sessions]
        await until(lambda: len(double.ran) == 10, "the calls")
        double.end.set()
        await passes(0.1, "the streams break")
        double.end = None
        go_on.set()
        replies = await asyncio.gather(*(one.result() for one in pending))
        assert [reply.outcome.observation for reply in replies] == ["5"] * 5
        assert len(double.asked) > 10
        # What ran when the stream broke is joined, not run again, by a service that keeps a ledger.
        assert {request.call_id for request in double.asked} == set(double.ran)
        await said(sessions[0], "4+4", turn=2)


class Poisonous(Counting):
    """One answer is larger than any message may be: a stream does not survive it."""

    async def StreamCalls(self, requests: Any, context: Any) -> Answers:
        async for response in super().StreamCalls(requests, context):
            await self._refuse(response, context)
            yield response

    async def CallTool(self, request: pb.CallToolRequest, context: Any) -> pb.CallToolResponse:
        answer = await super().CallTool(request, context)
        if not isinstance(context, InStream):
            await self._refuse(answer, context)
        return answer

    async def _refuse(self, answer: object, context: Any) -> None:
        if "poison" in str(answer):
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "message larger than max")


async def test_an_answer_that_breaks_streams_fails_its_own_call_and_no_other() -> None:
    async def run(request: pb.CallToolRequest) -> pb.CallResult:
        code = str(request.arguments["code"])
        await asyncio.sleep(0.05 if code == "poison" else 0.2)
        return text(code)

    async with client(Poisonous(run)) as tools:
        first, *others = [await tools.open_session(f"s{n}", TASK) for n in range(5)]
        await said(first, "first")
        pending = [send(one, f"fine {n}", turn=1) for n, one in enumerate(others)]
        with pytest.raises(ToolServiceFailed, match="RESOURCE_EXHAUSTED"):
            await said(first, "poison", turn=1)
        for number, one in enumerate(pending):
            assert (await one.result()).outcome.observation == f"fine {number}"
        assert tools.statistics()["python"].failures == {"RESOURCE_EXHAUSTED": 1}


async def test_a_stream_s_error_is_what_call_tool_would_have_raised() -> None:
    detail = reasons.ErrorDetail(
        reason=reasons.ERROR_REASON_QUEUE_LIMIT, subject="c", endpoint="x:1", mend="wait"
    )
    known = error_of(pb.CallError(code=8, message="full", detail=detail))
    assert isinstance(known, ServiceError)
    assert (known.reason_name, known.retry_after, known.fix) == ("QUEUE_LIMIT", None, "wait")
    assert known.code is grpc.StatusCode.RESOURCE_EXHAUSTED
    for code in (0, 14, 99, 4_000_000_000):
        assert isinstance(error_of(pb.CallError(code=code)), TransportError)


async def test_a_service_that_forgets_a_call_is_asked_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No call is without a deadline, on a stream as elsewhere."""
    monkeypatch.setattr(link, "TICK_SECONDS", 0.05)
    monkeypatch.setattr("engine.core.tools.calls.GRACE", 0.2)

    class Forgetful(ToolDouble):
        async def StreamCalls(self, requests: Any, context: Any) -> Answers:
            seen = 0
            async for request in requests:
                seen += 1
                if seen > 1:
                    answer = await self.CallTool(request.call, context)
                    for number in (request.id, request.id, 999):
                        yield pb.StreamCallsResponse(id=number, answer=answer)

    async with client(Forgetful(), queue_limit_s=0.1, run_limit_s=0.1) as tools:
        session = await tools.open_session("s", TASK)
        assert [await said(session, turn=turn) for turn in range(2)] == ["2", "2"]
        assert tools.statistics()["python"].retries == {"DEADLINE_EXCEEDED": 1}


async def test_who_says_running_at_once_is_not_asked_in_a_circle() -> None:
    class Hasty(ToolDouble):
        async def CallTool(self, request: pb.CallToolRequest, context: Any) -> pb.CallToolResponse:
            self.asked.append(request)
            return pb.CallToolResponse(running=pb.Running())

    double = Hasty()
    async with client(double) as tools:
        session = await tools.open_session("s", TASK)
        pending = send(session)
        await passes(1.0, "the call goes on")
        assert 2 <= len(double.asked) <= 8
        session.close()
        with pytest.raises(Exception, match="closed"):
            await pending.result()


async def test_a_reply_comes_while_nobody_waits_and_a_cancelled_wait_costs_nothing() -> None:
    release = asyncio.Event()

    async def run(request: pb.CallToolRequest) -> pb.CallResult:
        await release.wait()
        return add_up(request)

    async with client(ToolDouble(run)) as tools:
        session = await tools.open_session("s", TASK)
        pending = send(session)
        waiting = asyncio.ensure_future(pending.result())
        await passes(0.02, "the task waits for the reply")
        waiting.cancel()
        release.set()
        assert (await pending.result()).outcome.observation == "2"
        again = send(session, "2+2", turn=1)
        await until(lambda: again.settled, "the reply")
        assert again.result_ns >= again.dispatched_ns
        assert (await again.result()).outcome.observation == "4"


class Together(ToolDouble):
    """Notes how many calls each message of a stream brings. `takes_more`: says so itself."""

    takes_more = True

    def __init__(self, *arguments: Any, **how: Any) -> None:
        super().__init__(*arguments, **how)
        self.sizes: list[int] = []
        self.said: list[bool] = []

    async def StreamCalls(self, requests: Any, context: Any) -> Answers:
        async for message in requests:
            self.sizes.append(1 + len(message.more))
            self.said.append(message.takes_more)
            answers = pb.StreamCallsResponse(takes_more=self.takes_more)
            for request in (message, *message.more):
                answer = answers if request is message else answers.more.add()
                answer.id = request.id
                answer.answer.CopyFrom(await self.CallTool(request.call, context))
            yield answers


@pytest.mark.parametrize("takes_more", [True, False])
async def test_calls_that_wait_go_in_one_message_if_the_service_takes_that(
    monkeypatch: pytest.MonkeyPatch, *, takes_more: bool
) -> None:
    monkeypatch.setattr(link, "MOST_STREAMS", 1)
    monkeypatch.setattr(link, "MOST_BATCHED", 1)
    double = Together()
    double.takes_more = takes_more
    async with client(double) as tools:
        sessions = [await tools.open_session(f"s{n}", TASK) for n in range(20)]
        assert await said(sessions[0]) == "2"
        pending = [send(one, f"{n}+1", turn=1) for n, one in enumerate(sessions)]
        for number, one in enumerate(pending):
            assert (await one.result()).outcome.observation == str(number + 1)
        assert sum(double.sizes) == 21
        assert max(double.sizes) == (19 if takes_more else 1)
        assert double.said == [True] + [False] * (len(double.sizes) - 1)
