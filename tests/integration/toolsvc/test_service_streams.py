"""StreamCalls and GetSession of real services: real gRPC, tools of a file."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import grpc.aio
import pytest

import toolsvc.edge.call_stream
from tests.support.served_host import served
from tests.support.waiting import holds_for, until
from toolsvc import Call, Result, Tool
from toolsvc.edge.service import SERVICE_NAME
from toolsvc.host.host import Host
from toolwright import wire
from toolwright.common.v1 import reasons_pb2 as reasons
from toolwright.rpc.channel import open_channel
from toolwright.tool.v1 import tool_pb2 as pb
from toolwright.tool.v1 import tool_pb2_grpc

pytestmark = pytest.mark.quick


class Counting(Tool):
    """Counts its calls; sleeps for so many seconds, or raises for what is no number."""

    name = "count"
    parallel_calls = True

    def __init__(self) -> None:
        self.ran: list[str] = []
        self.called = asyncio.Event()

    async def call(self, state: object, call: Call) -> object:
        self.ran.append(call.call_id)
        self.called.set()
        await asyncio.sleep(float(call.arguments["text"]))
        if call.metadata.get("odd"):
            return Result.of("odd", metrics={"\ud800": 1.0})
        return f"ran {call.call_id}"


class Service:
    def __init__(self, tool: Counting, address: str) -> None:
        self.tool = tool
        self.channel = open_channel(address)
        self.stub: Any = tool_pb2_grpc.ToolServiceStub(self.channel)


@pytest.fixture
async def service() -> AsyncIterator[Service]:
    tool = Counting()
    async with Host([tool]) as host, served(host) as address:
        one = Service(tool, address)
        await one.stub.OpenSession(pb.OpenSessionRequest(session_id="s", owner="o"), timeout=10)
        yield one
        await one.channel.close()


def call(call_id: str, seconds: float = 0.0, **fields: Any) -> pb.CallToolRequest:
    fields = {"session_id": "s", "tool": "count", **fields}
    return pb.CallToolRequest(call_id=call_id, action=f"<count>{seconds:g}</count>", **fields)


def asking(number: int, request: pb.CallToolRequest) -> pb.StreamCallsRequest:
    return pb.StreamCallsRequest(id=number, call=request)


@asynccontextmanager
async def streaming(service: Service) -> AsyncIterator[Any]:
    stream = service.stub.StreamCalls(timeout=20)
    try:
        yield stream
    finally:
        stream.cancel()


def text_of(answer: pb.StreamCallsResponse) -> str:
    return answer.answer.result.observation[0].text


async def test_requests_that_make_no_sense_harm_nobody_else(service: Service) -> None:
    async with streaming(service) as stream:
        await stream.write(pb.StreamCallsRequest())
        await stream.write(pb.StreamCallsRequest(id=2, call=pb.CallToolRequest(session_id="s")))
        await stream.write(asking(3, call("x", run_limit=wire.duration(-1))))
        await stream.write(asking(2**64 - 1, call("a")))
        answers = {answer.id: answer for answer in [await stream.read() for _ in range(4)]}
    for number, subject in ((0, "session_id"), (2, "call_id"), (3, "run_limit")):
        assert answers[number].error.detail.reason == reasons.ERROR_REASON_INVALID_REQUEST
        assert answers[number].error.detail.subject == subject
    assert text_of(answers[2**64 - 1]) == "ran a"


async def test_bytes_that_are_no_message_end_their_stream_alone(service: Service) -> None:
    raw = service.channel.stream_stream(f"/{SERVICE_NAME}/StreamCalls")
    broken = raw(timeout=10)
    await broken.write(asking(1, call("begun", 0.3)).SerializeToString())
    await broken.write(b"\xff\xff\xff")
    async with streaming(service) as stream:
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            while await broken.read() is not grpc.aio.EOF:
                pass
        assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        await stream.write(asking(1, call("begun", 0.3)))
        assert text_of(await stream.read()) == "ran begun"
    assert service.tool.ran == ["begun"]


async def test_an_answer_that_no_message_can_hold_is_an_error_of_its_call_alone(
    service: Service,
) -> None:
    odd = call("odd", metadata=wire.struct({"odd": True}))
    async with streaming(service) as stream:
        await stream.write(asking(1, odd))
        await stream.write(asking(2, call("a")))
        answers = {answer.id: answer for answer in [await stream.read(), await stream.read()]}
    assert answers[1].error.detail.reason == reasons.ERROR_REASON_INTERNAL
    assert text_of(answers[2]) == "ran a"


async def test_a_stream_that_breaks_amid_answers_is_no_fault_of_the_service(
    service: Service, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(10):
        async with streaming(service) as stream:
            for number in range(300):
                await stream.write(asking(number, call(f"c{number}")))
            await stream.read()
    await holds_for(0.3, lambda: len(service.tool.ran) <= 300, "no call beyond those asked for")
    assert caplog.records == []


async def test_a_full_stream_reads_on_when_calls_are_answered(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(toolsvc.edge.call_stream, "MOST_AT_ONCE", 2)
    async with streaming(service) as stream:
        for number in range(5):
            await stream.write(asking(number, call(f"c{number}", 0.2)))
        await until(lambda: len(service.tool.ran) >= 2, "the first calls")
        await holds_for(0.05, lambda: service.tool.ran == ["c0", "c1"], "no more of them")
        found = {(await stream.read()).id for _ in range(5)}
    assert found == set(range(5))


@pytest.mark.parametrize("together", [True, False])
async def test_answers_come_together_only_if_the_caller_takes_that(
    service: Service, *, together: bool
) -> None:
    further = [asking(number, call(f"c{number}", 0.2)) for number in range(1, 20)]
    async with streaming(service) as stream:
        first = pb.StreamCallsRequest(id=0, call=call("c0", 0.2), takes_more=together)
        first.more.extend(further)
        await stream.write(first)
        messages = list[pb.StreamCallsResponse]()
        while sum(1 + len(one.more) for one in messages) < 20:
            messages.append(await stream.read())
    assert messages[0].takes_more
    assert (len(messages) < 10) == together
    answers = [one for message in messages for one in (message, *message.more)]
    assert {one.id: text_of(one) for one in answers} == {n: f"ran c{n}" for n in range(20)}


async def test_a_large_answer_goes_in_a_message_of_its_own(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(toolsvc.edge.call_stream, "TOGETHER_BYTES", 100)
    async with streaming(service) as stream:
        first = pb.StreamCallsRequest(id=0, call=call("c0", 0.2), takes_more=True)
        first.more.extend(asking(number, call(f"c{number}" * 30, 0.2)) for number in range(1, 6))
        await stream.write(first)
        answers = [await stream.read() for _ in range(6)]
    assert sorted(one.id for one in answers) == list(range(6))
    assert not any(one.more for one in answers)
