"""A tool service in the test's own event loop, made of the contract's generated code alone."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import grpc
import grpc.aio
from google.rpc import error_details_pb2, status_pb2

from toolwright.common.v1 import reasons_pb2 as reasons
from toolwright.rpc.errors import ServiceError, answers_errors
from toolwright.tool.v1 import tool_pb2 as pb
from toolwright.tool.v1 import tool_pb2_grpc

PYTHON = pb.ToolDescriptor(
    name="python",
    usage="write <python> code </python>",
    stateful=True,
    stop_strings=["</python>"],
    action_format=pb.ActionFormat(
        tag=pb.TagFormat(open="<python>", close="</python>", argument="code")
    ),
    capabilities=pb.ToolCapabilities(cancel=True),
)
STATELESS_PYTHON = pb.ToolDescriptor()
STATELESS_PYTHON.CopyFrom(PYTHON)
STATELESS_PYTHON.stateful = False
LONG_STOP = pb.ToolDescriptor(
    name="run",
    stop_strings=["</run>"],
    action_format=pb.ActionFormat(tag=pb.TagFormat(open="<run>", close="</run>", argument="code")),
)
"""Its stop is several tokens of the test policy's vocabulary."""
JSON_CALL = pb.ToolDescriptor(
    name="add",
    description="adds two numbers",
    action_format=pb.ActionFormat(
        json_call=pb.JsonCallFormat(open="<tool_call>", close="</tool_call>")
    ),
)

_DETAILS = "grpc-status-details-bin"
Run = Callable[[pb.CallToolRequest], pb.CallResult | Awaitable[pb.CallResult]]
Fault = Callable[[], ServiceError | None]


def text(observation: str, **fields: Any) -> pb.CallResult:
    """A valid result that shows `observation`."""
    fields = {"valid": True, "tool": "python", **fields}
    return pb.CallResult(observation=[pb.ObservationPart(text=observation)], **fields)


def add_up(request: pb.CallToolRequest) -> pb.CallResult:
    """Sums the whole numbers of a code like `1+2`."""
    code = str(request.arguments["code"])
    return text(str(sum(int(number) for number in code.split("+"))))


class ToolDouble(tool_pb2_grpc.ToolServiceServicer):
    """Records everything. `run` answers calls; `faults` are raised first, one a CallTool.

    The effect of a call happens once: a call_id that was answered is answered from the record.
    """

    def __init__(
        self,
        run: Run = add_up,
        *,
        tools: Sequence[pb.ToolDescriptor] = (PYTHON,),
        faults: Sequence[ServiceError | None] = (),
        open_faults: Sequence[ServiceError | None] = (),
        open_seconds: float = 0.0,
        endpoint: str = "",
        streams: bool = True,
    ) -> None:
        self.streams = streams
        """StreamCalls is served."""
        self.run = run
        self.tools = list(tools)
        self.faults = list(faults)
        self.open_faults = list(open_faults)
        self.open_seconds = open_seconds
        self.endpoint = endpoint
        self.address = ""
        self.opened: list[pb.OpenSessionRequest] = []
        self.asked: list[pb.CallToolRequest] = []
        self.ran: list[str] = []
        self.renewals = 0
        self.cancelled: list[str] = []
        self.closed: list[str] = []
        self.ended: list[str] = []
        """What was cancelled and closed, in the order of its coming."""
        self.owners: dict[str, str] = {}
        self.called = asyncio.Event()
        self.stop: Callable[[], Awaitable[None]]
        """Set by `serving`: ends the service."""
        self._results: dict[str, pb.CallResult] = {}

    @property
    def live(self) -> set[str]:
        """Sessions that were opened here and not closed."""
        return set(self.owners)

    async def ListTools(self, request: pb.ListToolsRequest, context: Any) -> pb.ListToolsResponse:
        return pb.ListToolsResponse(tools=self.tools, service="double")

    @answers_errors
    async def OpenSession(
        self, request: pb.OpenSessionRequest, context: Any
    ) -> pb.OpenSessionResponse:
        self.opened.append(request)
        fault = self.open_faults.pop(0) if self.open_faults else None
        if fault is not None:
            raise fault
        self.owners[request.session_id] = request.owner
        await asyncio.sleep(self.open_seconds)
        return pb.OpenSessionResponse(
            session_id=request.session_id, tools=self.tools, endpoint=self.endpoint
        )

    @answers_errors
    async def CallTool(self, request: pb.CallToolRequest, context: Any) -> pb.CallToolResponse:
        self.asked.append(request)
        self.called.set()
        fault = self.faults.pop(0) if self.faults else None
        if fault is not None:
            raise fault
        if request.call_id not in self._results:
            self.ran.append(request.call_id)
            found = self.run(request)
            self._results[request.call_id] = await found if inspect.isawaitable(found) else found
        return pb.CallToolResponse(result=self._results[request.call_id])

    async def StreamCalls(
        self, requests: AsyncIterator[pb.StreamCallsRequest], context: Any
    ) -> AsyncIterator[pb.StreamCallsResponse]:
        """Each as CallTool answers it, also where a subclass has another."""
        if not self.streams:
            await context.abort(grpc.StatusCode.UNIMPLEMENTED, "no streams here")
        ready: asyncio.Queue[pb.StreamCallsResponse] = asyncio.Queue()

        async def answer(request: pb.StreamCallsRequest) -> None:
            found = pb.StreamCallsResponse(id=request.id)
            try:
                found.answer.CopyFrom(await self.CallTool(request.call, InStream(context)))
            except _Aborted as aborted:
                found.error.CopyFrom(aborted.error)
            ready.put_nowait(found)

        async def read() -> None:
            async for request in requests:
                tasks.add(asyncio.create_task(answer(request)))

        tasks = {asyncio.create_task(read())}
        try:
            while True:
                yield await ready.get()
        finally:
            for task in tasks:
                task.cancel()

    async def RenewLeases(
        self, request: pb.RenewLeasesRequest, context: Any
    ) -> pb.RenewLeasesResponse:
        self.renewals += 1
        held = [name for name, owner in self.owners.items() if owner == request.owner]
        lost = [name for name in request.session_ids if name not in held]
        return pb.RenewLeasesResponse(held=held, lost=lost)

    async def CancelCall(
        self, request: pb.CancelCallRequest, context: Any
    ) -> pb.CancelCallResponse:
        self.cancelled.append(request.call_id)
        self.ended.append(request.call_id)
        return pb.CancelCallResponse(cancelled=True)

    async def CloseSession(
        self, request: pb.CloseSessionRequest, context: Any
    ) -> pb.CloseSessionResponse:
        self.closed.append(request.session_id)
        self.ended.append(request.session_id)
        return pb.CloseSessionResponse(closed=self.owners.pop(request.session_id, None) is not None)


class _Aborted(Exception):
    def __init__(self, error: pb.CallError) -> None:
        self.error = error


class InStream:
    """The context of one call of a stream."""

    def __init__(self, stream: Any) -> None:
        self.invocation_metadata = stream.invocation_metadata

    async def abort_with_status(self, status: Any) -> None:
        told = status_pb2.Status.FromString(dict(status.trailing_metadata)[_DETAILS])
        error = pb.CallError(code=told.code, message=told.message)
        info = error_details_pb2.RetryInfo()
        for packed in told.details:
            packed.Unpack(error.detail)
            if packed.Unpack(info):
                error.retry_after.CopyFrom(info.retry_delay)
        raise _Aborted(error)


def held(go: asyncio.Event) -> ToolDouble:
    """A double whose calls wait for `go`."""

    async def run(request: pb.CallToolRequest) -> pb.CallResult:
        await go.wait()
        return add_up(request)

    return ToolDouble(run)


def unavailable(retry_after: float = 0.01) -> ServiceError:
    """Nothing ran; the same call_id may come again."""
    return ServiceError(
        reasons.ERROR_REASON_QUEUE_LIMIT, "the queue limit passed", retry_after=retry_after
    )


def broken() -> ServiceError:
    """A fault of the service itself: no retry helps."""
    return ServiceError(reasons.ERROR_REASON_INTERNAL, "the service has a fault")


def session_lost() -> ServiceError:
    return ServiceError(reasons.ERROR_REASON_SESSION_LOST, "the session died with its state")


def elsewhere(endpoint: str) -> ServiceError:
    """Another process holds the session."""
    return ServiceError(
        reasons.ERROR_REASON_WRONG_ENDPOINT, "the session is held elsewhere", endpoint=endpoint
    )


@asynccontextmanager
async def serving(double: ToolDouble, port: int = 0) -> AsyncIterator[ToolDouble]:
    """Serves the double on a loopback port, which `double.address` names."""
    server = grpc.aio.server(options=(("grpc.so_reuseport", 0),))
    tool_pb2_grpc.add_ToolServiceServicer_to_server(double, server)
    double.address = f"127.0.0.1:{server.add_insecure_port(f'127.0.0.1:{port}')}"
    await server.start()
    double.stop = lambda: server.stop(0)
    try:
        yield double
    finally:
        await double.stop()
