"""A small service that keeps the whole contract; `broken` breaks it rule by rule.

It is a yardstick for the suite and a text to read beside the contract, not a host: it knows no
sandbox, bounds no number of sessions, and forgets nothing of a session before it ends.

Invariants
- A call belongs to its session. `Call.answer` is its record: whoever settles it first, the tool,
  a limit, CancelCall or the session's end, says what the call came to, and nobody changes it.
- An error under which nothing ran takes the call out of the ledger, so that its id is free.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, ClassVar

import grpc.aio
from google.protobuf.message import Message
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from toolsvc.check.reference_tools import (
    PHOTO,
    RUN,
    InvalidAction,
    State,
    ToolFailed,
    descriptors,
    failed,
    find_tool,
    invalid,
    read_arguments,
)
from toolwright import wire
from toolwright.common.v1 import media_pb2
from toolwright.common.v1 import reasons_pb2 as reasons
from toolwright.rpc import options
from toolwright.rpc.errors import ServiceError, abort, answers_errors, not_served
from toolwright.tool.v1 import tool_pb2 as pb
from toolwright.tool.v1 import tool_pb2_grpc
from toolwright.types import ToolErrorKind

REAP_SECONDS = 0.1
LONGEST_WAIT = 30.0
PIECE_BYTES = 1 << 20
_RETRY_SECONDS = 0.1


@dataclass(slots=True, eq=False)
class Call:
    """One call of the ledger."""

    identity: bytes
    turn: int
    answer: asyncio.Future[pb.CallResult]
    asked: float = field(default_factory=time.perf_counter)
    started: float | None = None
    work: asyncio.Task[None] | None = None

    @property
    def queued_seconds(self) -> float:
        return (self.started or time.perf_counter()) - self.asked

    @property
    def run_seconds(self) -> float:
        return 0.0 if self.started is None else time.perf_counter() - self.started


@dataclass(slots=True, eq=False)
class Session:
    """One open session."""

    request: pb.OpenSessionRequest
    lease_until: float
    tools: list[pb.ToolDescriptor]
    state: State = field(default_factory=State)
    calls: dict[str, Call] = field(default_factory=dict)
    acknowledged: int = 0


class Reference(tool_pb2_grpc.ToolServiceServicer):
    """The servicer. `serving` makes a server of it."""

    message_bytes: ClassVar[int] = options.MESSAGE_LIMIT
    health: ClassVar[bool] = True
    reflection: ClassVar[bool] = True
    interceptors: ClassVar[tuple[grpc.aio.ServerInterceptor, ...]] = ()

    def __init__(self) -> None:
        self.sessions: dict[str, Session] = {}
        self.closed: set[str] = set()
        self.blobs: dict[str, bytes] = {hashlib.sha256(PHOTO).hexdigest(): PHOTO}

    # What each method of the contract does.

    @answers_errors
    async def ListTools(self, request: Any, context: Any) -> pb.ListToolsResponse:
        return pb.ListToolsResponse(tools=self.tools(), service="reference 1")

    @answers_errors
    async def OpenSession(self, request: Any, context: Any) -> pb.OpenSessionResponse:
        return await self.open(request)

    @answers_errors
    async def CallTool(self, request: Any, context: Any) -> pb.CallToolResponse:
        return await self.call(request)

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
    async def ForkSession(self, request: Any, context: Any) -> Any:
        raise not_served("ForkSession")

    async def GetBlob(self, request: Any, context: Any) -> AsyncIterator[pb.GetBlobResponse]:
        content = self.blobs.get(request.sha256)
        if content is None:
            error = refusal(reasons.ERROR_REASON_BLOB_NOT_FOUND, "no such blob", request.sha256)
            await abort(context, error)
        for at in range(request.offset, len(content or b""), PIECE_BYTES):
            yield pb.GetBlobResponse(data=(content or b"")[at : at + PIECE_BYTES])

    @answers_errors
    async def PutBlob(self, request: Any, context: Any) -> pb.PutBlobResponse:
        pieces = [piece async for piece in request]
        return self.put_blob(pieces)

    # How it is done.

    def tools(self) -> list[pb.ToolDescriptor]:
        return descriptors()

    async def open(self, request: pb.OpenSessionRequest) -> pb.OpenSessionResponse:
        self.require(request, "session_id")
        self.require(request, "owner")
        lease = self.seconds(request, "lease", 120.0)
        session = self.sessions.get(request.session_id)
        if session is None:
            self.look_for_blobs(request)
            session = Session(request, time.monotonic() + lease, self.session_tools(request))
            self.sessions[request.session_id] = session
        elif session.request != request:
            raise refusal(
                reasons.ERROR_REASON_INVALID_REQUEST,
                "the session is open by another request",
                request.session_id,
            )
        return pb.OpenSessionResponse(session_id=request.session_id, tools=session.tools)

    def session_tools(self, request: pb.OpenSessionRequest) -> list[pb.ToolDescriptor]:
        tools = self.tools()
        for name in request.tools:
            if name not in {tool.name for tool in tools}:
                raise refusal(reasons.ERROR_REASON_UNKNOWN_TOOL, "no such tool", name)
        return [tool for tool in tools if not request.tools or tool.name in request.tools]

    def look_for_blobs(self, request: pb.OpenSessionRequest) -> None:
        """That all which the session needs are here; these tools do nothing with them."""
        for blob in request.blobs:
            if blob.sha256 not in self.blobs:
                raise refusal(
                    reasons.ERROR_REASON_BLOB_NOT_FOUND, "the blob is not here", blob.sha256
                )

    async def call(self, request: pb.CallToolRequest) -> pb.CallToolResponse:
        self.require(request, "session_id")
        self.require(request, "call_id")
        wait = min(self.seconds(request, "wait", LONGEST_WAIT), LONGEST_WAIT)
        queue_limit = self.seconds(request, "queue_limit", 30.0)
        run_limit = self.seconds(request, "run_limit", 30.0)
        session = self.session(request.session_id)
        call = self.known(session, request)
        if call is None:
            call = self.begin(session, request, queue_limit, run_limit)
        return await self.answer(call, wait)

    def known(self, session: Session, request: pb.CallToolRequest) -> Call | None:
        """The call of this id if it was made before; refuses what must not run."""
        call = session.calls.get(request.call_id)
        if call is not None:
            if call.identity != self.identity(request):
                raise refusal(
                    reasons.ERROR_REASON_CALL_ID_REUSED,
                    "the call_id came with another request",
                    request.call_id,
                )
            return call
        if request.turn < session.acknowledged:
            raise refusal(
                reasons.ERROR_REASON_RESULT_FORGOTTEN,
                "the turn was acknowledged",
                request.call_id,
            )
        return None

    def begin(
        self, session: Session, request: pb.CallToolRequest, queue_limit: float, run_limit: float
    ) -> Call:
        call = Call(self.identity(request), request.turn, asyncio.Future())
        call.answer.add_done_callback(lambda answer: answer.exception())  # seen, though unasked
        session.calls[request.call_id] = call
        session.acknowledged = max(session.acknowledged, request.turn)
        call.work = asyncio.create_task(self.work(session, request, call, queue_limit, run_limit))
        return call

    async def work(
        self,
        session: Session,
        request: pb.CallToolRequest,
        call: Call,
        queue_limit: float,
        run_limit: float,
    ) -> None:
        """From the queue to the record."""
        try:
            result = await self.perform(session, request, call, queue_limit, run_limit)
        except ServiceError as error:
            self.free(session, request.call_id)
            self.settle(call, error)
        else:
            self.settle(call, result)

    async def perform(
        self,
        session: Session,
        request: pb.CallToolRequest,
        call: Call,
        queue_limit: float,
        run_limit: float,
    ) -> pb.CallResult:
        name = request.tool
        try:
            name = name or find_tool(request.action)
            tool = next((tool for tool in session.tools if tool.name == name), None)
            if tool is None:
                raise refusal(reasons.ERROR_REASON_UNKNOWN_TOOL, "no such tool here", name)
            arguments = read_arguments(request, tool)
        except InvalidAction as error:
            result = invalid(str(error))
        else:
            turnstile = self.turnstile(session, tool)
            await self.queue(turnstile, queue_limit, request.call_id)
            call.started = time.perf_counter()
            try:
                result = await self.run(session, tool, arguments, run_limit)
            finally:
                turnstile.release()
        result.tool = name
        result.queued.CopyFrom(wire.duration(call.queued_seconds))
        result.run.CopyFrom(wire.duration(call.run_seconds))
        return result

    def turnstile(self, session: Session, tool: pb.ToolDescriptor) -> asyncio.Lock:
        """What a call of this tool has to hold while it runs."""
        return asyncio.Lock() if tool.parallel_calls else session.state.serial

    async def queue(self, turnstile: asyncio.Lock, limit: float, call_id: str) -> None:
        try:
            async with asyncio.timeout(limit):
                await turnstile.acquire()
        except TimeoutError:
            raise refusal(
                reasons.ERROR_REASON_QUEUE_LIMIT,
                f"not started within {limit:g} s",
                call_id,
                retry_after=_RETRY_SECONDS,
            ) from None

    async def run(
        self, session: Session, tool: pb.ToolDescriptor, arguments: Any, limit: float
    ) -> pb.CallResult:
        try:
            async with asyncio.timeout(limit):
                return await RUN[tool.name](session.state, arguments)
        except TimeoutError:
            return failed(ToolErrorKind.TIMEOUT, f"stopped after {limit:g} s")
        except ToolFailed as error:
            return failed(ToolErrorKind.EXCEPTION, str(error))

    async def answer(self, call: Call, wait: float) -> pb.CallToolResponse:
        # Not `wait_for`: an RPC that goes away must not take the call with it.
        await asyncio.wait((call.answer,), timeout=wait)
        if call.answer.done():
            return pb.CallToolResponse(result=call.answer.result())
        return pb.CallToolResponse(
            running=pb.Running(
                queued=wire.duration(call.queued_seconds), run=wire.duration(call.run_seconds)
            )
        )

    def settle(self, call: Call, outcome: pb.CallResult | ServiceError) -> bool:
        """Records what a call came to, unless it is recorded. True if it was not."""
        if call.answer.done():
            return False
        if isinstance(outcome, ServiceError):
            call.answer.set_exception(outcome)
        else:
            call.answer.set_result(outcome)
        return True

    def free(self, session: Session, call_id: str) -> None:
        """Nothing ran: the id may be used again."""
        del session.calls[call_id]

    def stop(self, call: Call) -> None:
        if call.work is not None:
            call.work.cancel()

    def cancel(self, session: Session, call: Call) -> bool:
        result = failed(ToolErrorKind.CANCELLED, "cancelled")
        stopped = self.settle(call, result)
        self.stop(call)
        return stopped

    def renew(self, request: pb.RenewLeasesRequest) -> pb.RenewLeasesResponse:
        until = time.monotonic() + self.seconds(request, "lease", 120.0)
        held = self.held(request.owner)
        for name in held:
            self.sessions[name].lease_until = until
        lost = [name for name in request.session_ids if name not in held]
        return pb.RenewLeasesResponse(held=held, lost=lost)

    def held(self, owner: str) -> list[str]:
        """Names of an owner's sessions."""
        return [name for name, one in self.sessions.items() if one.request.owner == owner]

    def close(self, session_id: str) -> bool:
        session = self.sessions.pop(session_id, None)
        if session is None:
            return False
        self.closed.add(session_id)
        for call in session.calls.values():
            self.settle(call, self.gone(session_id))
            self.stop(call)
        return True

    def session(self, session_id: str) -> Session:
        session = self.sessions.get(session_id)
        if session is None:
            raise self.gone(session_id)
        return session

    def gone(self, session_id: str) -> ServiceError:
        if session_id in self.closed:
            return refusal(reasons.ERROR_REASON_SESSION_CLOSED, "the session ended", session_id)
        return refusal(reasons.ERROR_REASON_SESSION_NOT_FOUND, "no such session", session_id)

    async def reap(self) -> None:
        """Ends sessions whose lease is over, for ever."""
        while True:
            await asyncio.sleep(REAP_SECONDS)
            now = time.monotonic()
            for name in [name for name, one in self.sessions.items() if one.lease_until < now]:
                self.close(name)

    def put_blob(self, pieces: Sequence[pb.PutBlobRequest]) -> pb.PutBlobResponse:
        content = b"".join(piece.data for piece in pieces)
        blob = pieces[0].blob if pieces else media_pb2.BlobRef()
        if hashlib.sha256(content).hexdigest() != blob.sha256 or len(content) != blob.size:
            raise refusal(
                reasons.ERROR_REASON_INVALID_REQUEST, "the bytes are not what it names", "blob"
            )
        self.blobs[blob.sha256] = content
        return pb.PutBlobResponse(blob=blob)

    def identity(self, request: pb.CallToolRequest) -> bytes:
        """Of everything that makes it this call and no other: all but the limits."""
        copy = pb.CallToolRequest()
        copy.CopyFrom(request)
        for name in ("queue_limit", "run_limit", "wait"):
            copy.ClearField(name)
        return copy.SerializeToString(deterministic=True)

    def require(self, request: Message, name: str) -> None:
        if not getattr(request, name):
            raise refusal(reasons.ERROR_REASON_INVALID_REQUEST, f"{name} is missing", name)

    def seconds(self, request: Message, name: str, default: float) -> float:
        """A duration of the request; refuses a negative one."""
        if not request.HasField(name):
            return default
        value: float = getattr(request, name).ToNanoseconds() / 1e9
        if value < 0:
            raise refusal(reasons.ERROR_REASON_INVALID_REQUEST, f"{name} is negative", name)
        return value


def refusal(
    reason: int, message: str, subject: str, *, retry_after: float | None = None
) -> ServiceError:
    """The error of the contract that travels."""
    return ServiceError(reason, message, subject=subject, retry_after=retry_after)


@asynccontextmanager
async def serving(service: Reference, listen: str = "127.0.0.1:0") -> AsyncIterator[str]:
    """The address of a server that serves `service`.

    Not toolwright.rpc.server: that one cannot be had without health, reflection or its limit.
    """
    limits = (
        ("grpc.max_receive_message_length", service.message_bytes),
        ("grpc.max_send_message_length", service.message_bytes),
    )
    server = grpc.aio.server(interceptors=service.interceptors, options=limits)
    tool_pb2_grpc.add_ToolServiceServicer_to_server(service, server)
    name = pb.DESCRIPTOR.services_by_name["ToolService"].full_name
    if service.health:
        answers = health.aio.HealthServicer()
        health_pb2_grpc.add_HealthServicer_to_server(answers, server)
        for one in ("", name):
            await answers.set(one, health_pb2.HealthCheckResponse.SERVING)
    if service.reflection:
        reflection.enable_server_reflection((name, reflection.SERVICE_NAME), server)
    port = server.add_insecure_port(listen)
    await server.start()
    reaper = asyncio.create_task(service.reap())
    try:
        yield f"{listen.rpartition(':')[0]}:{port}"
    finally:
        reaper.cancel()
        for session_id in list(service.sessions):
            service.close(session_id)
        await server.stop(0.2)
