"""StreamCalls, broken."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.support.conformance.broken.registry import broken
from tests.support.conformance.reference import Reference
from toolsvc.check.types import Rule
from toolwright.rpc.errors import ServiceError
from toolwright.tool.v1 import tool_pb2 as pb


@broken(Rule.STREAM, "a-stream-answers-as-call-tool-does")
class StreamsRunAnew(Reference):
    """Knows nothing in a stream of what CallTool ran, nor the other way round."""

    async def streamed(self, request: pb.StreamCallsRequest) -> pb.StreamCallsResponse:
        request.call.call_id += "/streamed"
        return await super().streamed(request)


@broken(Rule.STREAM, "answers-of-a-stream-are-matched-by-number", "each-request-is-answered-once")
class OneNumberForAll(Reference):
    """Answers without saying to what."""

    async def streamed(self, request: pb.StreamCallsRequest) -> pb.StreamCallsResponse:
        answer = await super().streamed(request)
        answer.id = 0
        return answer


@broken(Rule.STREAM, "answers-of-a-stream-are-matched-by-number")
class ShortNumbers(Reference):
    """Keeps half of a number."""

    async def streamed(self, request: pb.StreamCallsRequest) -> pb.StreamCallsResponse:
        answer = await super().streamed(request)
        answer.id &= 0xFFFFFFFF
        return answer


@broken(Rule.STREAM, "requests-of-one-message-are-answered-each")
class ReadsTheFirstAlone(Reference):
    """Reads one request of a message."""

    def requests(self, message: pb.StreamCallsRequest) -> list[pb.StreamCallsRequest]:
        return [message]


@broken(Rule.STREAM, "requests-of-one-message-are-answered-each")
class AnswersTogether(Reference):
    """Puts answers together for a caller that does not take that."""

    def __init__(self) -> None:
        super().__init__()
        self.held: list[pb.StreamCallsResponse] = []

    async def write(self, answer: pb.StreamCallsResponse, context: Any) -> None:
        if answer.id % 2:
            self.held.append(answer)
            return
        answer.more.extend(self.held)
        self.held.clear()
        await super().write(answer, context)


@broken(Rule.STREAM, "each-request-is-answered-once")
class AnswersTwice(Reference):
    """Sends every answer of a stream twice."""

    async def write(self, answer: pb.StreamCallsResponse, context: Any) -> None:
        await super().write(answer, context)
        await super().write(answer, context)


@broken(Rule.STREAM, "each-request-is-answered-once")
class LeavesSomeOut(Reference):
    """Does not answer every request of a stream."""

    async def write(self, answer: pb.StreamCallsResponse, context: Any) -> None:
        if answer.id != 5:
            await super().write(answer, context)


@broken(Rule.STREAM, "an-error-leaves-the-stream-open")
class ErrorsEndStreams(Reference):
    """Ends a stream with the first error of a call."""

    async def streamed(self, request: pb.StreamCallsRequest) -> pb.StreamCallsResponse:
        return pb.StreamCallsResponse(id=request.id, answer=await self.call(request.call))


@broken(Rule.STREAM, "an-error-leaves-the-stream-open")
class StreamErrorsWithoutReason(Reference):
    """Sends errors in a stream as a code and a text alone."""

    def call_error(self, error: ServiceError) -> pb.CallError:
        return pb.CallError(code=error.code.value[0], message=error.message)


@broken(Rule.STREAM, "an-error-leaves-the-stream-open")
class StreamErrorsInvite(Reference):
    """Invites a retry of whatever a stream refuses."""

    def call_error(self, error: ServiceError) -> pb.CallError:
        told = super().call_error(error)
        told.retry_after.SetInParent()
        return told


@broken(Rule.STREAM, "a-stream-answers-first-what-ends-first")
class StreamsInOrder(Reference):
    """Answers the requests of a stream one after another."""

    def __init__(self) -> None:
        super().__init__()
        self.turn = asyncio.Lock()

    async def streamed(self, request: pb.StreamCallsRequest) -> pb.StreamCallsResponse:
        async with self.turn:
            return await super().streamed(request)
