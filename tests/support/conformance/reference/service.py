"""The contract's methods, each in the words of the parts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, ClassVar

import grpc.aio

from tests.support.conformance.reference.calls import Calls
from toolwright import wire
from toolwright.rpc import options
from toolwright.rpc.errors import ServiceError, abort, answers_errors, detail_of, not_served
from toolwright.tool.v1 import tool_pb2 as pb
from toolwright.tool.v1 import tool_pb2_grpc

PIECE_BYTES = 1 << 20


class Reference(Calls, tool_pb2_grpc.ToolServiceServicer):
    """The servicer. `server.serving` makes a server of it."""

    message_bytes: ClassVar[int] = options.MESSAGE_LIMIT
    health: ClassVar[bool] = True
    reflection: ClassVar[bool] = True
    interceptors: ClassVar[tuple[grpc.aio.ServerInterceptor, ...]] = ()

    @answers_errors
    async def ListTools(self, request: Any, context: Any) -> pb.ListToolsResponse:
        return pb.ListToolsResponse(tools=self.tools(), service="reference 1")

    @answers_errors
    async def OpenSession(self, request: Any, context: Any) -> pb.OpenSessionResponse:
        return await self.open(request)

    @answers_errors
    async def CallTool(self, request: Any, context: Any) -> pb.CallToolResponse:
        return await self.call(request)

    async def StreamCalls(  # type: ignore[override]  # generated types know generators alone
        self, request_iterator: Any, context: Any
    ) -> None:
        async def reply(request: pb.StreamCallsRequest) -> None:
            answer = await self.streamed(request)
            async with writing:
                await self.write(answer, context)

        writing = asyncio.Lock()
        async with asyncio.TaskGroup() as replies:
            async for message in request_iterator:
                for request in self.requests(message):
                    replies.create_task(reply(request))

    def requests(self, message: pb.StreamCallsRequest) -> list[pb.StreamCallsRequest]:
        """The requests of a message of a stream."""
        return [message, *message.more]

    async def streamed(self, request: pb.StreamCallsRequest) -> pb.StreamCallsResponse:
        """What a stream answers to one request."""
        try:
            return pb.StreamCallsResponse(id=request.id, answer=await self.call(request.call))
        except ServiceError as error:
            return pb.StreamCallsResponse(id=request.id, error=self.call_error(error))

    async def write(self, answer: pb.StreamCallsResponse, context: Any) -> None:
        """Sends it; one at a time."""
        answer.takes_more = True
        await context.write(answer)

    def call_error(self, error: ServiceError) -> pb.CallError:
        """An error as it travels inside a stream."""
        return pb.CallError(
            code=error.code.value[0],
            message=error.message,
            detail=detail_of(error),
            retry_after=(None if error.retry_after is None else wire.duration(error.retry_after)),
        )

    @answers_errors
    async def GetSession(self, request: Any, context: Any) -> pb.GetSessionResponse:
        self.require(request, "session_id")
        return self.look(request.session_id)

    def look(self, session_id: str) -> pb.GetSessionResponse:
        """What is held of a session."""
        session = self.session(session_id)
        return pb.GetSessionResponse(call_ids=session.began, tools=session.tools)

    @answers_errors
    async def CancelCall(self, request: Any, context: Any) -> pb.CancelCallResponse:
        session = self.session(request.session_id)
        call = session.calls.get(request.call_id)
        return pb.CancelCallResponse(cancelled=call is not None and self.cancel(session, call))

    @answers_errors
    async def RenewLeases(self, request: Any, context: Any) -> pb.RenewLeasesResponse:
        self.require(request, "owner")
        return self.renew(request)

    @answers_errors
    async def CloseSession(self, request: Any, context: Any) -> pb.CloseSessionResponse:
        self.require(request, "session_id")
        return pb.CloseSessionResponse(closed=self.close(request.session_id))

    @answers_errors
    async def SnapshotSession(self, request: Any, context: Any) -> Any:
        raise not_served("SnapshotSession")

    @answers_errors
    async def RestoreSession(self, request: Any, context: Any) -> Any:
        raise not_served("RestoreSession")

    @answers_errors
    async def ForkSession(self, request: Any, context: Any) -> pb.ForkSessionResponse:
        return pb.ForkSessionResponse(session=await self.fork(request))

    async def GetBlob(self, request: Any, context: Any) -> AsyncIterator[pb.GetBlobResponse]:
        try:
            content = self.get_blob(request.sha256)
        except ServiceError as error:
            await abort(context, error)
        for at in range(request.offset, len(content), PIECE_BYTES):
            yield pb.GetBlobResponse(data=content[at : at + PIECE_BYTES])

    @answers_errors
    async def PutBlob(self, request: Any, context: Any) -> pb.PutBlobResponse:
        pieces = [piece async for piece in request]
        return self.put_blob(pieces)
