"""One StreamCalls, as the checks use it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import grpc
import grpc.aio

from toolsvc.check.client import CheckSession
from toolsvc.check.connection import ANSWER_SECONDS, Refusal
from toolsvc.check.types import CheckFailed, Skipped, expect
from toolwright.tool.v1 import tool_pb2 as pb

_METHOD = "StreamCalls"
_SERVICE = pb.DESCRIPTOR.services_by_name["ToolService"].full_name


class Stream:
    """Async context manager: a stream to the session's endpoint. The end of the block cuts it."""

    def __init__(self, session: CheckSession) -> None:
        self._session = session
        self._rpc: Any = None

    async def __aenter__(self) -> Stream:
        """Raises Skipped if the service does not serve StreamCalls."""
        await self._expect_served()
        self._rpc = self._session.stub.StreamCalls(timeout=2 * ANSWER_SECONDS)
        return self

    async def __aexit__(self, *_: object) -> None:
        self.cut()

    def cut(self) -> None:
        """Cuts the stream, as the death of a caller does."""
        self._rpc.cancel()

    async def send(self, number: int, call: pb.CallToolRequest) -> None:
        """Raises Refusal if the stream has ended."""
        await self.send_together({number: call})

    async def send_together(self, calls: Mapping[int, pb.CallToolRequest]) -> None:
        """Sends calls in one message, by their numbers. Raises Refusal if the stream has ended."""
        first, *more = (pb.StreamCallsRequest(id=id_, call=call) for id_, call in calls.items())
        first.more.extend(more)
        try:
            await self._rpc.write(first)
        except grpc.aio.AioRpcError as error:
            raise Refusal.of(_METHOD, error) from error
        except asyncio.InvalidStateError:
            # The stream has ended, and only a read says how.
            await self.read()
            raise CheckFailed("StreamCalls ended while a request was being sent") from None

    async def read(self) -> pb.StreamCallsResponse:
        """The next answer. Raises Refusal if the stream fails, or CheckFailed if it ends."""
        answer = await self._read()
        if answer is None:
            raise CheckFailed("StreamCalls ended before it answered a request")
        return answer

    async def rest(self) -> list[pb.StreamCallsResponse]:
        """The remaining answers, after the last request. Raises Refusal if the stream fails."""
        await self._rpc.done_writing()
        answers = []
        while (answer := await self._read()) is not None:
            answers.append(answer)
        return answers

    async def result(self, number: int, call: pb.CallToolRequest) -> pb.CallResult:
        """The result of the stream's only call; asks again while it runs."""
        while True:
            await self.send(number, call)
            answer = await self.read()
            expect(answer.id == number, f"request {number} was answered under {answer.id}")
            expect(
                answer.HasField("answer"),
                f"StreamCalls answered an error: {answer.error.message or 'nothing'}",
            )
            if answer.answer.HasField("result"):
                return answer.answer.result

    async def _read(self) -> pb.StreamCallsResponse | None:
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                answer = await self._rpc.read()
        except grpc.aio.AioRpcError as error:
            raise Refusal.of(_METHOD, error) from error
        except TimeoutError:
            raise CheckFailed(f"StreamCalls did not answer within {ANSWER_SECONDS:g} s") from None
        return None if answer is grpc.aio.EOF else answer

    async def _expect_served(self) -> None:
        """Sends a stream with an empty request: an error during a write would not say its cause."""
        channel = self._session.client.connection.channel(self._session.opened.endpoint)
        asking = channel.unary_stream(
            f"/{_SERVICE}/{_METHOD}",
            request_serializer=pb.StreamCallsRequest.SerializeToString,
            response_deserializer=pb.StreamCallsResponse.FromString,
        )
        try:
            async for _ in asking(pb.StreamCallsRequest(), timeout=ANSWER_SECONDS):
                pass
        except grpc.aio.AioRpcError as error:
            if error.code() is grpc.StatusCode.UNIMPLEMENTED:
                raise Skipped(f"the service does not serve {_METHOD}") from error
